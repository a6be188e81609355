//! What a shopper typed, as questions to the index.
//!
//! Every word must be met. How it may be met widens in three tiers, each asked
//! only when the ones before gave too few: whole words and their stems; then
//! words that begin with the last one, for search as you type; then words one
//! typo away. A tier leaves out what the tier before found, so that a typo never
//! stands above a match, however the weights add up.
//!
//! The text is cut into words and each becomes a term. No query language is
//! parsed anywhere, so no text can be one.
//!
//! Weights are constants, not BM25. Names are short and every word is required,
//! so how rare a word is says little; and BM25 counts removed products until
//! their segment is merged, so that two indexes of the same products would
//! answer in two orders.

use tantivy::Term;
use tantivy::query::{
    BooleanQuery, ConstScoreQuery, DisjunctionMaxQuery, FuzzyTermQuery, Occur, Query, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};

use crate::error::SearchError;
use crate::words::{Word, words};

/// Longer than any product's name; longer texts are refused, not cut.
pub const TEXT_CHARS_MAX: usize = 256;

/// Each word costs up to ten look-ups, four of them walks through all words.
pub const WORDS_MAX: usize = 32;

/// Shorter words have too many neighbours one letter away.
pub const TYPO_LETTERS_MIN: usize = 5;

/// How much a word's place and form count. A word counts once, at its best.
mod weight {
    pub const NAME_WORD: f32 = 8.0;
    pub const NAME_STEM: f32 = 7.0;
    pub const NAME_PREFIX: f32 = 6.0;
    pub const NAME_TYPO: f32 = 5.0;
    pub const CATEGORY_WORD: f32 = 4.0;
    pub const CATEGORY_STEM: f32 = 3.0;
    pub const CATEGORY_PREFIX: f32 = 2.0;
    pub const CATEGORY_TYPO: f32 = 1.0;
}

/// Where words and stems of products stand in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub name_words: Field,
    pub name_stems: Field,
    pub category_words: Field,
    pub category_stems: Field,
}

#[derive(Clone, Copy)]
enum Tier {
    Whole,
    Prefix,
    Typo,
}

/// The words of a text, if it may be searched for.
pub(crate) fn checked(text: &str) -> Result<Vec<Word>, SearchError> {
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        return Err(SearchError::TooLong);
    }
    let words = words(text);
    match words.len() {
        0 => Err(SearchError::NoWord),
        1..=WORDS_MAX => Ok(words),
        words => Err(SearchError::TooManyWords { words }),
    }
}

/// The tiers in order, none finding what one before it finds.
pub(crate) fn tiers(places: &Places, words: &[Word]) -> [Box<dyn Query>; 3] {
    let tier = |tier| all_words(places, words, tier);
    let beyond = |wider, narrower| -> Box<dyn Query> {
        Box::new(BooleanQuery::new(vec![
            (Occur::Must, tier(wider)),
            (Occur::MustNot, tier(narrower)),
        ]))
    };
    [
        tier(Tier::Whole),
        beyond(Tier::Prefix, Tier::Whole),
        beyond(Tier::Typo, Tier::Prefix),
    ]
}

fn all_words(places: &Places, words: &[Word], tier: Tier) -> Box<dyn Query> {
    let last = words.len().saturating_sub(1);
    let each = words.iter().enumerate().map(|(index, word)| {
        let mut ways = whole(places, word);
        match tier {
            Tier::Whole => {}
            Tier::Prefix | Tier::Typo if index != last => {}
            Tier::Prefix | Tier::Typo => ways.extend(prefixes(places, word)),
        }
        match tier {
            Tier::Whole | Tier::Prefix => {}
            Tier::Typo => ways.extend(typos(places, word)),
        }
        let best: Box<dyn Query> = Box::new(DisjunctionMaxQuery::new(ways));
        (Occur::Must, best)
    });
    Box::new(BooleanQuery::new(each.collect()))
}

fn whole(places: &Places, word: &Word) -> Vec<Box<dyn Query>> {
    let term = |field, text: &str, weight| {
        let term = Term::from_field_text(field, text);
        weighted(TermQuery::new(term, IndexRecordOption::Basic), weight)
    };
    vec![
        term(places.name_words, &word.text, weight::NAME_WORD),
        term(places.name_stems, &word.stem, weight::NAME_STEM),
        term(places.category_words, &word.text, weight::CATEGORY_WORD),
        term(places.category_stems, &word.stem, weight::CATEGORY_STEM),
    ]
}

/// Of words, not of stems: what was typed so far may end inside an ending.
fn prefixes(places: &Places, word: &Word) -> Vec<Box<dyn Query>> {
    let prefix = |field, weight| {
        let term = Term::from_field_text(field, &word.text);
        weighted(FuzzyTermQuery::new_prefix(term, 0, false), weight)
    };
    vec![
        prefix(places.name_words, weight::NAME_PREFIX),
        prefix(places.category_words, weight::CATEGORY_PREFIX),
    ]
}

/// Two neighbouring letters in the wrong order are one typo. Stems too, because
/// a typo and another ending are two letters apart from the name's word.
fn typos(places: &Places, word: &Word) -> Vec<Box<dyn Query>> {
    let near = |field, text: &str, weight| {
        let term = Term::from_field_text(field, text);
        tolerates_typo(text).then(|| weighted(FuzzyTermQuery::new(term, 1, true), weight))
    };
    [
        near(places.name_words, &word.text, weight::NAME_TYPO),
        near(places.name_stems, &word.stem, weight::NAME_TYPO),
        near(places.category_words, &word.text, weight::CATEGORY_TYPO),
        near(places.category_stems, &word.stem, weight::CATEGORY_TYPO),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Numbers and model names have none: 12345 is another article than 12346.
fn tolerates_typo(text: &str) -> bool {
    text.chars().count() >= TYPO_LETTERS_MIN && text.chars().all(char::is_alphabetic)
}

fn weighted(query: impl Query, weight: f32) -> Box<dyn Query> {
    Box::new(ConstScoreQuery::new(Box::new(query), weight))
}
