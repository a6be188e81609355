//! How a text becomes words: the same way for names and for what shoppers type.
//!
//! A word is a run of letters and digits in any script. The word boundaries of
//! Unicode's annex 29 were rejected: they keep `Dr.Martens` and `3.5` in one
//! piece, and a shopper who types `martens` would find nothing.

use std::borrow::Cow;

use frostem::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Lower-case, composed, with е for ё.
    pub text: String,
    /// The text without its ending, by the grammar of its script.
    pub stem: String,
}

pub(crate) fn words(text: &str) -> Vec<Word> {
    folded(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| Word {
            text: word.to_owned(),
            stem: stem(word).into_owned(),
        })
        .collect()
}

/// What two spellings of one word have in common. Stress marks go, the breve
/// of й stays: it is composed before marks are dropped.
fn folded(text: &str) -> String {
    text.nfkc()
        .filter(|c| !is_combining_mark(*c))
        .flat_map(char::to_lowercase)
        .map(|c| if c == 'ё' { 'е' } else { c })
        .collect()
}

fn stem(word: &str) -> Cow<'_, str> {
    let algorithm = if word.chars().any(|c| matches!(c, 'а'..='я')) {
        Algorithm::Russian
    } else if word.chars().any(|c| c.is_ascii_lowercase()) {
        Algorithm::English
    } else {
        return Cow::Borrowed(word);
    };
    Stemmer::new(algorithm).stem(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_cut_folded_and_stemmed_by_script() {
        fn check(text: &str, expected: &[(&str, &str)]) {
            let found = words(text);
            let found: Vec<_> = found.iter().map(|w| (&*w.text, &*w.stem)).collect();
            assert_eq!(found, expected, "{text}");
        }
        check(
            "Беспроводные Наушники",
            &[("беспроводные", "беспроводн"), ("наушники", "наушник")],
        );
        check("Running shoes", &[("running", "run"), ("shoes", "shoe")]);
        check(
            "USB-кабели 2 м",
            &[("usb", "usb"), ("кабели", "кабел"), ("2", "2"), ("м", "м")],
        );
        check("Ёлка елка", &[("елка", "елк"), ("елка", "елк")]);
        check("Dr.Martens", &[("dr", "dr"), ("martens", "marten")]);
        // Decomposed й and ё, a stress mark, full-width letters.
        check("чаи\u{306}", &[("чай", "ча")]);
        check("е\u{308}лка", &[("елка", "елк")]);
        check("за\u{301}мок", &[("замок", "замок")]);
        check("ＴＶ", &[("tv", "tv")]);
        check("«—» *:()", &[]);
    }

    proptest! {
        /// Otherwise a name pasted from a page would not find its product.
        #[test]
        fn cutting_what_was_cut_changes_nothing(text in any::<String>()) {
            let once = words(&text);
            let texts: Vec<&str> = once.iter().map(|word| word.text.as_str()).collect();
            prop_assert_eq!(words(&texts.join(" ")), once);
        }
    }
}
