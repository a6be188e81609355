//! Findings as a compiler shows them: what, where, the line, why, and what to do.

use std::fmt::Write as _;

use crate::file::ParseError;
use crate::findings::{Finding, Severity};
use crate::place::Extent;

/// Whether a terminal reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Coloured,
}

/// A file that findings point into.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'t> {
    /// The file's name, as the caller gave it.
    pub origin: &'t str,
    pub text: &'t str,
}

#[derive(Clone, Copy)]
enum Ink {
    Error,
    Warning,
    Frame,
    Strong,
}

/// Every finding with its line, then how many there are.
pub fn report(findings: &[Finding], source: SourceText<'_>, paint: Paint) -> String {
    let mut text = String::new();
    for finding in findings {
        text += &finding_text(finding, source, paint);
        text += "\n";
    }
    text + &format!("{}: {}\n", source.origin, verdict(findings))
}

/// A file that could not be read as a layout at all.
pub fn unreadable(error: &ParseError, source: SourceText<'_>, paint: Paint) -> String {
    let title = head(Severity::Refused, "file", &error.reason, paint);
    let shown = snippet(
        source,
        Some(Extent::at(error.line, error.column)),
        Severity::Refused,
        paint,
    );
    format!("{title}{shown}")
}

/// `2 errors, 1 warning`, and whether the layout can be used.
pub fn verdict(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Refused), count(Severity::Warning));
    let verdict = if errors == 0 { "usable" } else { "refused" };
    match (errors, warnings) {
        (0, 0) => verdict.to_owned(),
        _ => format!(
            "{verdict}, {}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    }
}

fn counted(count: usize, word: &str) -> String {
    match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

fn finding_text(finding: &Finding, source: SourceText<'_>, paint: Paint) -> String {
    let mut text = head(finding.severity, finding.rule, &finding.message, paint);
    let extent = finding.place.locate(source.text);
    text += &snippet(source, extent, finding.severity, paint);
    let gutter = " ".repeat(gutter_width(extent));
    let equals = painted("=", Ink::Frame, paint);
    for (word, sentence) in [("why", finding.reason), ("fix", finding.fix.as_str())] {
        let word = painted(&format!("{word}:"), Ink::Strong, paint);
        let _ = writeln!(text, "{gutter} {equals} {word} {sentence}");
    }
    text
}

fn head(severity: Severity, rule: &str, message: &str, paint: Paint) -> String {
    let ink = ink_of(severity);
    let title = painted(&format!("{severity}[{rule}]"), ink, paint);
    let message = painted(message, Ink::Strong, paint);
    format!("{title}: {message}\n")
}

/// The line with the place underlined, as far as the text has it.
fn snippet(
    source: SourceText<'_>,
    extent: Option<Extent>,
    severity: Severity,
    paint: Paint,
) -> String {
    let gutter = " ".repeat(gutter_width(extent));
    let arrow = painted("-->", Ink::Frame, paint);
    let Some(Extent { start, width }) = extent else {
        return format!("{gutter}{arrow} {}\n", source.origin);
    };
    let line = source.text.lines().nth(start.line - 1).unwrap_or_default();
    // Tabs would push the underline out of place.
    let line = line.replace('\t', " ");
    let left = line.chars().count().saturating_sub(start.column - 1);
    let underline = painted(&"^".repeat(width.min(left).max(1)), ink_of(severity), paint);
    let (bar, number) = (
        painted("|", Ink::Frame, paint),
        painted(&start.line.to_string(), Ink::Frame, paint),
    );
    let indent = " ".repeat(start.column - 1);
    format!(
        "{gutter}{arrow} {}:{}:{}\n{gutter} {bar}\n{number} {bar} {line}\n{gutter} {bar} {indent}{underline}\n",
        source.origin, start.line, start.column
    )
}

fn gutter_width(extent: Option<Extent>) -> usize {
    extent.map_or(1, |extent| extent.start.line.to_string().len())
}

const fn ink_of(severity: Severity) -> Ink {
    match severity {
        Severity::Refused => Ink::Error,
        Severity::Warning => Ink::Warning,
    }
}

fn painted(text: &str, ink: Ink, paint: Paint) -> String {
    if paint == Paint::Plain {
        return text.to_owned();
    }
    let code = match ink {
        Ink::Error => "1;31",
        Ink::Warning => "1;33",
        Ink::Frame => "1;34",
        Ink::Strong => "1",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    const TEXT: &str = "# a\n[tables.carts]\n\tkey = [\"я\"]\n";

    fn finding(place: Place) -> Finding {
        let mut finding = Finding::refused("the key is bad", "write a good one").under(&place);
        (finding.rule, finding.reason) = ("good-keys", "bad keys are no good");
        finding
    }

    fn shown(place: Place, text: &str) -> String {
        let source = SourceText {
            origin: "a.toml",
            text,
        };
        report(&[finding(place)], source, Paint::Plain)
    }

    #[test]
    fn a_finding_shows_its_line_why_it_is_wrong_and_what_to_do() {
        let expected = "\
error[good-keys]: the key is bad
 --> a.toml:3:8
  |
3 |  key = [\"я\"]
  |        ^^^^^
  = why: bad keys are no good
  = fix: write a good one

a.toml: refused, 1 error, no warnings
";
        assert_eq!(
            shown(Place::new(["tables", "carts", "key"]), TEXT),
            expected
        );
    }

    #[test]
    fn a_text_that_is_no_longer_that_of_the_layout_shows_no_line() {
        let text = shown(Place::new(["tables"]), "a = ");
        assert!(text.contains("\n --> a.toml\n"), "{text}");
    }

    #[test]
    fn colours_are_for_terminals_only() {
        let source = SourceText {
            origin: "a.toml",
            text: TEXT,
        };
        let findings = [finding(Place::new(["tables"]))];
        assert!(!report(&findings, source, Paint::Plain).contains('\u{1b}'));
        let coloured = report(&findings, source, Paint::Coloured);
        assert!(
            coloured.contains("\u{1b}[1;31merror[good-keys]\u{1b}[0m"),
            "{coloured}"
        );
    }

    #[test]
    fn a_file_that_is_no_layout_shows_where_reading_ended() {
        let error = ParseError {
            origin: "a.toml".to_owned(),
            line: 2,
            column: 9,
            reason: "there is no such table".to_owned(),
        };
        let source = SourceText {
            origin: "a.toml",
            text: TEXT,
        };
        let shown = unreadable(&error, source, Paint::Plain);
        assert!(
            shown.contains("error[file]: there is no such table\n --> a.toml:2:9"),
            "{shown}"
        );
        assert!(
            shown.contains("2 | [tables.carts]\n  |         ^\n"),
            "{shown}"
        );
    }
}
