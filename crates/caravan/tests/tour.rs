//! The tour of the README, typed in as it stands there.
//!
//! Every `sh` block below the heading runs, in one shell and in order; the block after
//! it, if it is `text`, is what must come out, `…` standing for what differs each time.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::{Command, Stdio};

use support::Server;

const README: &str = include_str!("../../../README.md");

const HEADING: &str = "## A tour in five minutes";

/// Printed between two blocks.
const MARK: &str = "=== next block ===";

/// Commands, and what they print.
type Step = (String, Option<String>);

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        match kind {
            "sh" => steps.push((block, None)),
            "text" => steps.last_mut().unwrap().1 = Some(block),
            other => panic!("the tour has a block of {other:?}, which nobody runs"),
        }
    }
    steps
}

/// Whether the text is as shown, `…` being anything within a line.
fn is_as_shown(shown: &str, printed: &str) -> bool {
    let (shown, printed): (Vec<&str>, Vec<&str>) =
        (shown.lines().collect(), printed.lines().collect());
    shown.len() == printed.len()
        && shown
            .iter()
            .zip(printed)
            .all(|(shown, printed)| line_is_as_shown(shown, printed))
}

fn line_is_as_shown(shown: &str, printed: &str) -> bool {
    let pieces: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = pieces.as_slice() else {
        return shown == printed;
    };
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    for piece in middle {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn the_tour_of_the_readme_prints_what_it_shows() {
    let tour = README.split_once(HEADING).expect("the README has a tour").1;
    let tour = tour.split("\n## ").next().unwrap();
    let steps = steps(tour);
    assert_eq!(steps.iter().filter(|(_, shown)| shown.is_some()).count(), 7);

    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--sample"]);
    server.wait_for("/v1/products/search?q=kestrel", |answer| {
        answer.status == 200
    });
    let blocks = steps
        .iter()
        .map(|(block, _)| format!("{block}\necho '{MARK}'\n"));
    let script = format!("set -eu\n{}", blocks.collect::<String>());
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("SHOP", &server.url)
        // Whatever stands between this test and the world is not between it and the shop.
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{complaint}");
    let mark = format!("{MARK}\n");
    let printed: Vec<&str> = printed.split(&mark).collect();
    for ((block, shown), printed) in steps.iter().zip(printed) {
        let shown = shown.as_deref().unwrap_or("");
        assert!(
            is_as_shown(shown, printed.trim_end()),
            "the README shows for\n{block}\n\n{shown}\n\nbut there came\n\n{printed}\n{complaint}"
        );
    }
    server.stop();
}

#[test]
fn an_ellipsis_stands_for_anything_within_a_line_and_nothing_else_does() {
    fn check(shown: &str, printed: &str, expected: bool) {
        assert_eq!(is_as_shown(shown, printed), expected, "{shown} / {printed}");
    }
    check("a", "a", true);
    check("a", "ab", false);
    check("a…c", "abc", true);
    check("a…c", "abcd", false);
    check("a…", "abcd", true);
    check("a…c…", "abcd", true);
    check("a…x…", "abcd", false);
    check("…d", "abcd", true);
    check("ab…ba", "aba", false);
    check("a\nb", "a", false);
    check("", "", true);
}
