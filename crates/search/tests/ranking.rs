//! What shoppers type and what they find, in what order.

#![allow(clippy::unwrap_used)]

use model::{CategoryName, ProductId, ProductName};
use proptest::prelude::*;
use search::{HITS_MAX, IndexError, ProductIndex, Put, SearchError, TEXT_CHARS_MAX, WORDS_MAX};

/// Id, name, category.
const CATALOGUE: &[(&str, &str, &str)] = &[
    ("phone", "Телефон Samsung Galaxy", "Смартфоны"),
    ("phone-case", "Чехол для телефона Samsung", "Аксессуары"),
    ("phone-stand", "Телефонодержатель", "Аксессуары"),
    ("tv", "Телевизор Samsung 55", "Телевизоры"),
    ("tree", "Ёлка искусственная", "Новый год"),
    ("shoes", "Running shoes for men", "Sport"),
    ("shoe-rack", "Shoe rack", "Furniture"),
    ("run-belt", "Belt for a run", "Sport"),
    ("cable", "Кабель USB-C 2 м", "Аксессуары"),
    ("lamp", "Lamp 12345", "Lighting"),
    ("lamp-long", "Lamp 12346 with a very long name", "Lighting"),
    ("desk", "Desk lamp", "Lighting"),
    ("table", "Стол обеденный", "Мебель"),
    ("operators", "AND OR NOT", "Puzzles"),
];

fn index_of(products: &[(&str, &str, &str)]) -> ProductIndex {
    let index = ProductIndex::new().unwrap();
    products.iter().for_each(|product| put(&index, product));
    index.commit().unwrap();
    index
}

fn put(index: &ProductIndex, (id, name, category): &(&str, &str, &str)) {
    let (id, name, category) = parsed(id, name, category);
    index.put(&id, &name, &category).unwrap();
}

fn parsed(id: &str, name: &str, category: &str) -> (ProductId, ProductName, CategoryName) {
    (
        ProductId::parse(id).unwrap(),
        ProductName::parse(name).unwrap(),
        CategoryName::parse(category).unwrap(),
    )
}

fn found(index: &ProductIndex, text: &str) -> Vec<String> {
    let ids = index.search(text, 10).unwrap();
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

#[test]
fn shoppers_find_products_in_both_languages() {
    let index = index_of(CATALOGUE);
    let check = |text: &str, expected: &[&str]| assert_eq!(found(&index, text), expected, "{text}");

    // The word itself before its other forms, both before longer words.
    check("телефон", &["phone", "phone-case", "phone-stand"]);
    check("телефона", &["phone-case", "phone"]);
    check("ТЕЛЕФОНЫ", &["phone", "phone-case"]);
    check("run", &["run-belt", "shoes"]);
    check("running", &["shoes", "run-belt"]);
    check("shoe", &["shoe-rack", "shoes"]);
    // Every word must be met, in any order.
    check("samsung телефон", &["phone", "phone-case"]);
    check("samsung shoes", &[]);
    // Of equal matches the shorter name, then the lower id.
    check("lamp", &["desk", "lamp", "lamp-long"]);
    // Name above category, one word from each.
    check("sport", &["run-belt", "shoes"]);
    check("аксессуар телефон", &["phone-case", "phone-stand"]);
    // ё is е, either way, composed or not.
    check("елка", &["tree"]);
    check("ёлки", &["tree"]);
    check("Е\u{308}лка", &["tree"]);
    check("usb c", &["cable"]);
    check("  USB-C,  кабели ", &["cable"]);
}

#[test]
fn a_name_outweighs_a_category() {
    let index = index_of(&[
        ("by-category", "Роман", "Книга"),
        ("by-name", "Книга о вкусной и здоровой пище", "Кулинария"),
        ("by-form", "Полка для книг", "Мебель"),
    ]);
    assert_eq!(
        found(&index, "книга"),
        ["by-name", "by-form", "by-category"]
    );
}

#[test]
fn the_last_word_may_be_unfinished_and_only_the_last() {
    let index = index_of(CATALOGUE);
    let check = |text: &str, expected: &[&str]| assert_eq!(found(&index, text), expected, "{text}");
    check("теле", &["phone-stand", "phone", "tv", "phone-case"]);
    check("телев", &["tv"]);
    check("samsung телев", &["tv"]);
    check("теле samsung", &[]);
    check("акс", &["phone-stand", "phone-case", "cable"]);
    check("1234", &["lamp", "lamp-long"]);
}

#[test]
fn one_typo_is_forgiven_in_long_words_and_stands_last() {
    let index = index_of(CATALOGUE);
    let check = |text: &str, expected: &[&str]| assert_eq!(found(&index, text), expected, "{text}");
    check("телифон", &["phone", "phone-case"]);
    check("телифоны", &["phone", "phone-case"]);
    check("тлеефон", &["phone", "phone-case"]);
    check("samsnug телефон", &["phone", "phone-case"]);
    check("телефон samsnug", &["phone", "phone-case"]);
    check("lighing", &["desk", "lamp", "lamp-long"]);
    // Two typos, a short word, a number.
    check("тилифон", &[]);
    check("стул", &[]);
    check("lump", &[]);
    check("12345", &["lamp"]);

    let index = index_of(&[
        ("typo", "Кошка", "Кошка кошка"),
        ("prefix", "Мошкара и ещё много слов в имени", "Природа"),
        ("exact", "Мошка среди многих других слов имени", "Природа"),
    ]);
    assert_eq!(found(&index, "мошка"), ["exact", "prefix", "typo"]);
}

#[test]
fn what_shoppers_type_is_never_a_query_language() {
    let index = index_of(CATALOGUE);
    let check = |text: &str, expected: &[&str]| assert_eq!(found(&index, text), expected, "{text}");
    check("\"телефон\"", &["phone", "phone-case", "phone-stand"]);
    check("телефон AND чехол", &[]);
    check("and", &["operators"]);
    check("and or not", &["operators"]);
    check("NOT samsung", &[]);
    check("-samsung", &["phone", "tv", "phone-case"]);
    check("id:phone", &[]);
    check("name_words:телефон", &[]);
    check("category_words:(sport)", &[]);
    check("tele*", &[]);
    check("теле*визор", &[]);
    check("[a TO z]", &[]);
    check("{телефон}", &["phone", "phone-case", "phone-stand"]);
    check("телефон^100 ~2", &[]);
    check("/теле.*/", &["phone-stand", "phone", "tv", "phone-case"]);
    check("\\телефон\\", &["phone", "phone-case", "phone-stand"]);
}

#[test]
fn texts_that_cannot_be_searched_for_are_refused_with_the_reason() {
    let index = index_of(CATALOGUE);
    let check = |text: &str, expected: SearchError| {
        assert_eq!(index.search(text, 10), Err(expected), "{text}");
    };
    check("", SearchError::NoWord);
    check(" \t", SearchError::NoWord);
    check("*:\"()[]{}!?", SearchError::NoWord);
    check(&"я".repeat(TEXT_CHARS_MAX + 1), SearchError::TooLong);
    check(
        &"a ".repeat(WORDS_MAX + 1),
        SearchError::TooManyWords {
            words: WORDS_MAX + 1,
        },
    );
    assert_eq!(index.search(&"я".repeat(TEXT_CHARS_MAX), 10), Ok(vec![]));
    assert_eq!(index.search(&"z ".repeat(WORDS_MAX), 10), Ok(vec![]));
}

#[test]
fn an_index_without_a_commit_says_so_instead_of_finding_nothing() {
    let index = ProductIndex::new().unwrap();
    put(&index, &CATALOGUE[0]);
    assert_eq!(index.search("телефон", 10), Err(SearchError::NotReady));
    index.commit().unwrap();
    assert_eq!(found(&index, "телефон"), ["phone"]);
}

#[test]
fn a_product_is_found_by_its_newest_name_only_and_not_after_its_removal() {
    let index = index_of(CATALOGUE);
    let (id, lamp, lighting) = parsed("lamp", "Lamp 12345", "Lighting");
    assert_eq!(index.put(&id, &lamp, &lighting), Ok(Put::Unchanged));
    let torch = ProductName::parse("Torch").unwrap();
    assert_eq!(index.put(&id, &torch, &lighting), Ok(Put::Changed));
    assert_eq!(found(&index, "torch"), [""; 0], "before the commit");
    // Back to the committed name, in one commit with the rename.
    assert_eq!(index.put(&id, &lamp, &lighting), Ok(Put::Changed));
    index.commit().unwrap();
    assert_eq!(found(&index, "12345"), ["lamp"]);
    assert_eq!(found(&index, "torch"), [""; 0]);

    index.put(&id, &torch, &lighting).unwrap();
    index.commit().unwrap();
    assert_eq!(found(&index, "12345"), [""; 0]);
    assert_eq!(found(&index, "torch"), ["lamp"]);

    assert_eq!(index.remove(&id), Ok(Put::Changed));
    index.commit().unwrap();
    assert_eq!(index.remove(&id), Ok(Put::Unchanged));
    assert_eq!(found(&index, "torch"), [""; 0]);
    assert_eq!(index.products(), CATALOGUE.len() as u64 - 1);
}

#[test]
fn starting_over_keeps_the_old_answers_until_the_new_ones_are_whole() {
    let index = index_of(CATALOGUE);
    index.start_over().unwrap();
    put(&index, &("lamp", "Torch", "Lighting"));
    put(&index, &("lamp", "Candle", "Lighting"));
    put(&index, &("desk", "Desk", "Lighting"));
    assert_eq!(
        index.remove(&ProductId::parse("desk").unwrap()),
        Ok(Put::Changed)
    );
    assert_eq!(found(&index, "lamp 12345"), ["lamp"]);
    // Given up half-way and begun again.
    index.start_over().unwrap();
    put(&index, &("lamp", "Candle", "Lighting"));
    assert_eq!(found(&index, "lamp 12345"), ["lamp"]);
    index.commit().unwrap();
    assert_eq!(found(&index, "lighting"), ["lamp"]);
    assert_eq!(found(&index, "candle"), ["lamp"]);
    assert_eq!(index.products(), 1);
    index.start_over().unwrap();
    index.commit().unwrap();
    assert_eq!(found(&index, "candle"), [""; 0]);
}

#[test]
fn a_full_index_refuses_new_products_and_still_renames_old_ones() {
    let index = ProductIndex::holding_at_most(2).unwrap();
    put(&index, &("a", "Alpha", "Letters"));
    put(&index, &("b", "Beta", "Letters"));
    let full = Err(IndexError::Full { products_max: 2 });
    let (id, name, category) = parsed("c", "Gamma", "Letters");
    assert_eq!(index.put(&id, &name, &category), full);
    index.commit().unwrap();
    assert_eq!(index.put(&id, &name, &category), full);
    put(&index, &("b", "Omega", "Letters"));
    index.remove(&ProductId::parse("a").unwrap()).unwrap();
    index.commit().unwrap();
    assert_eq!(index.put(&id, &name, &category), Ok(Put::Changed));
    index.commit().unwrap();
    assert_eq!(found(&index, "letters"), ["b", "c"]);
}

#[test]
fn many_changes_without_a_commit_become_visible_by_themselves() {
    let index = index_of(&[("first", "First", "Letters")]);
    for number in 0..10_000 {
        let id = format!("p{number}");
        put(&index, &(&id, "Copy", "Letters"));
    }
    assert_eq!(index.search("copy", usize::MAX).unwrap().len(), HITS_MAX);
    assert_eq!(index.search("copy", 0).unwrap(), []);
    assert_eq!(index.products(), 10_001);

    // Not so while starting over: half of the products would stand for all.
    index.start_over().unwrap();
    for number in 0..10_000 {
        let id = format!("p{number}");
        put(&index, &(&id, "Other", "Letters"));
    }
    assert_eq!(index.search("other", 1).unwrap(), []);
    assert_eq!(index.products(), 10_001);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Renames and removals leave no trace in the order of the answers.
    #[test]
    fn answers_depend_on_the_products_and_not_on_how_they_came(
        steps in prop::collection::vec((0usize..12, 0usize..8), 1..60),
    ) {
        const WORDS: [&str; 8] = ["лампа", "лампы", "lamp", "lamps", "лампада", "lamppost", "Лампа lamp", "kamp"];
        let incremental = ProductIndex::new().unwrap();
        incremental.commit().unwrap();
        let mut products = std::collections::BTreeMap::new();
        for (product, word) in steps {
            let id = format!("p{product}");
            if word == 7 {
                incremental.remove(&ProductId::parse(&id).unwrap()).unwrap();
                products.remove(&id);
            } else {
                put(&incremental, &(&id, WORDS[word], WORDS[7 - word]));
                products.insert(id, word);
            }
            if product % 3 == 0 {
                incremental.commit().unwrap();
            }
        }
        incremental.commit().unwrap();
        let rebuilt = ProductIndex::new().unwrap();
        for (id, word) in products.iter().rev() {
            put(&rebuilt, &(id, WORDS[*word], WORDS[7 - word]));
        }
        rebuilt.commit().unwrap();
        for text in ["лампа", "лам", "lamp", "lamps kamp", "лампп", "lmap"] {
            prop_assert_eq!(found(&incremental, text), found(&rebuilt, text), "{}", text);
        }
    }
}

#[test]
fn no_text_breaks_the_search() {
    let index = index_of(CATALOGUE);
    proptest!(|(text in any::<String>())| {
        match index.search(&text, 10) {
            Ok(_)
            | Err(
                SearchError::NoWord | SearchError::TooLong | SearchError::TooManyWords { .. },
            ) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    });
}
