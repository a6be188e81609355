//! The index: products by the words of their names and categories, in memory.
//!
//! Changes are gathered and become visible together at [`ProductIndex::commit`].
//! Searches go on meanwhile on what was committed last.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, RwLock};

use model::{CategoryName, ProductId, ProductName};
use tantivy::collector::sort_key::{SortBySimilarityScore, SortByStaticFastValue, SortByString};
use tantivy::collector::{DocSetCollector, TopDocs};
use tantivy::indexer::LogMergePolicy;
use tantivy::query::TermQuery;
use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, STRING, Schema, SchemaBuilder, TextFieldIndexing,
    TextOptions, Value,
};
use tantivy::tokenizer::{PreTokenizedString, Token};
use tantivy::{
    Index, IndexReader, IndexWriter, Order, ReloadPolicy, Searcher, TantivyDocument, Term,
};

use crate::error::{IndexError, SearchError};
use crate::query::{self, Places};
use crate::words::{Word, words};

/// The most products an index holds unless told otherwise.
pub const PRODUCTS_MAX: usize = 5_000_000;

/// The most products one search answers.
pub const HITS_MAX: usize = 1000;

/// Changed products between two commits; one more commits by itself.
const UNCOMMITTED_MAX: usize = 10_000;

/// What the writer gathers before it makes a segment of it.
const WRITER_BYTES: usize = 32 << 20;

/// A segment with a larger share of removed products is merged, to give back
/// their memory.
const REMOVED_SHARE_MAX: f32 = 0.3;

const ID: &str = "id";
const NAME_LENGTH: &str = "name_length";

/// Products, findable by name.
///
/// `put`, `remove`, `commit` and `start_over` may block the calling thread for
/// as long as a segment is made, some milliseconds; `search` never waits for them.
pub struct ProductIndex {
    fields: Fields,
    schema: Schema,
    products_max: usize,
    changing: Mutex<Changing>,
    /// What searches see. `None` before the first commit.
    committed: RwLock<Option<Searcher>>,
}

/// Whether the index has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Changed,
    /// The product is there under this name and category already.
    Unchanged,
}

#[derive(Clone, Copy, Debug)]
struct Fields {
    id: Field,
    places: Places,
    /// Words in the name: of equal matches the shorter name comes first.
    name_length: Field,
    /// Category and name as they were put.
    content: Field,
}

/// The index that changes are made to: the one that searches see, or after
/// `start_over` the one that replaces it.
struct Changing {
    writer: IndexWriter,
    reader: IndexReader,
    /// Not committed yet, so that searches see another one or none.
    fresh: bool,
    uncommitted: Uncommitted,
}

#[derive(Default)]
struct Uncommitted {
    /// Products that were not there at the last commit.
    added: usize,
    /// Hashes of the ids put or removed since the last commit, which does not
    /// say any more what they are. Two ids of one hash cost a needless rewrite.
    touched: HashSet<u64>,
    hasher: RandomState,
}

impl ProductIndex {
    pub fn new() -> Result<ProductIndex, IndexError> {
        ProductIndex::holding_at_most(PRODUCTS_MAX)
    }

    pub fn holding_at_most(products_max: usize) -> Result<ProductIndex, IndexError> {
        let mut schema = Schema::builder();
        let fields = Fields::declare(&mut schema);
        let schema = schema.build();
        Ok(ProductIndex {
            fields,
            changing: Mutex::new(Changing::fresh(&schema)?),
            schema,
            products_max,
            committed: RwLock::new(None),
        })
    }

    /// Makes the product found under this name and category from the next
    /// commit on, and under no others.
    pub fn put(
        &self,
        id: &ProductId,
        name: &ProductName,
        category: &CategoryName,
    ) -> Result<Put, IndexError> {
        let content = format!("{category}\n{name}");
        let mut changing = self.lock();
        let stored = changing.stored(&self.fields, id)?;
        match &stored {
            Stored::As(known) if *known == content => return Ok(Put::Unchanged),
            Stored::As(_) | Stored::Uncommitted => {
                changing.writer.delete_term(self.fields.term(id));
            }
            Stored::Nowhere => {
                if changing.products() >= self.products_max {
                    return Err(IndexError::Full {
                        products_max: self.products_max,
                    });
                }
                changing.uncommitted.added += 1;
            }
        }
        let document = self.fields.document(id, name, category, &content);
        changing.writer.add_document(document)?;
        self.touch(&mut changing, id)?;
        Ok(Put::Changed)
    }

    pub fn remove(&self, id: &ProductId) -> Result<Put, IndexError> {
        let mut changing = self.lock();
        match changing.stored(&self.fields, id)? {
            Stored::Nowhere => return Ok(Put::Unchanged),
            Stored::As(_) | Stored::Uncommitted => {
                changing.writer.delete_term(self.fields.term(id));
            }
        }
        self.touch(&mut changing, id)?;
        Ok(Put::Changed)
    }

    /// Makes everything put and removed so far visible to searches.
    pub fn commit(&self) -> Result<(), IndexError> {
        self.publish(&mut self.lock())
    }

    /// From here on changes go to an empty index, which replaces the present
    /// one as a whole at the next commit. Uncommitted changes are dropped.
    pub fn start_over(&self) -> Result<(), IndexError> {
        *self.lock() = Changing::fresh(&self.schema)?;
        Ok(())
    }

    /// How many products searches can find.
    pub fn products(&self) -> u64 {
        self.committed().map_or(0, |searcher| searcher.num_docs())
    }

    /// The best matches first; of equal ones the shorter name, then the lower
    /// id. Depends on the products and the text only, not on how they came here.
    pub fn search(&self, text: &str, limit: usize) -> Result<Vec<ProductId>, SearchError> {
        let words = query::checked(text)?;
        let searcher = self.committed().ok_or(SearchError::NotReady)?;
        let limit = limit.min(HITS_MAX);
        let mut found = Vec::new();
        for tier in query::tiers(&self.fields.places, &words) {
            if found.len() >= limit {
                break;
            }
            let order = (
                SortBySimilarityScore,
                (
                    SortByStaticFastValue::<u64>::for_field(NAME_LENGTH),
                    Order::Asc,
                ),
                (SortByString::for_field(ID), Order::Asc),
            );
            let best = TopDocs::with_limit(limit - found.len()).order_by(order);
            for ((_, _, id), _) in searcher.search(&tier, &best)? {
                found.push(stored_id(id)?);
            }
        }
        Ok(found)
    }

    fn touch(&self, changing: &mut Changing, id: &ProductId) -> Result<(), IndexError> {
        let uncommitted = &mut changing.uncommitted;
        uncommitted.touched.insert(uncommitted.hasher.hash_one(id));
        // A fresh index is committed by its maker, when it is whole.
        if !changing.fresh && changing.uncommitted.touched.len() >= UNCOMMITTED_MAX {
            self.publish(changing)?;
        }
        Ok(())
    }

    fn publish(&self, changing: &mut Changing) -> Result<(), IndexError> {
        if !changing.fresh && changing.uncommitted.touched.is_empty() {
            return Ok(());
        }
        changing.writer.commit()?;
        changing.reader.reload()?;
        changing.uncommitted = Uncommitted::default();
        changing.fresh = false;
        let searcher = changing.reader.searcher();
        let before = self
            .committed
            .write()
            .expect("no code panics while it holds the lock")
            .replace(searcher);
        // Freed after the lock: the last holder of a whole index takes its time.
        drop(before);
        Ok(())
    }

    fn committed(&self) -> Option<Searcher> {
        let committed = self.committed.read();
        committed
            .expect("no code panics while it holds the lock")
            .clone()
    }

    fn lock(&self) -> MutexGuard<'_, Changing> {
        self.changing
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

/// What is known of a product where changes are made.
enum Stored {
    Nowhere,
    As(String),
    /// Put or removed since the last commit.
    Uncommitted,
}

impl Changing {
    fn fresh(schema: &Schema) -> Result<Changing, IndexError> {
        let index = Index::create_in_ram(schema.clone());
        // One thread: more make segments of less, and the shop needs the cores.
        let writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
        let mut merging = LogMergePolicy::default();
        merging.set_del_docs_ratio_before_merge(REMOVED_SHARE_MAX);
        writer.set_merge_policy(Box::new(merging));
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()?;
        Ok(Changing {
            writer,
            reader,
            fresh: true,
            uncommitted: Uncommitted::default(),
        })
    }

    /// What is removed counts until it is committed.
    fn products(&self) -> usize {
        let committed = usize::try_from(self.reader.searcher().num_docs()).unwrap_or(usize::MAX);
        committed.saturating_add(self.uncommitted.added)
    }

    fn stored(&self, fields: &Fields, id: &ProductId) -> Result<Stored, IndexError> {
        let hash = self.uncommitted.hasher.hash_one(id);
        if self.uncommitted.touched.contains(&hash) {
            return Ok(Stored::Uncommitted);
        }
        if self.fresh {
            return Ok(Stored::Nowhere);
        }
        let searcher = self.reader.searcher();
        let query = TermQuery::new(fields.term(id), IndexRecordOption::Basic);
        let Some(address) = searcher
            .search(&query, &DocSetCollector)?
            .into_iter()
            .next()
        else {
            return Ok(Stored::Nowhere);
        };
        let document: TantivyDocument = searcher.doc(address)?;
        let content = document.get_first(fields.content);
        let content = content.and_then(|content| content.as_str());
        content
            .map(|content| Stored::As(content.to_owned()))
            .ok_or_else(|| broken("a product has no content"))
    }
}

impl Fields {
    fn declare(schema: &mut SchemaBuilder) -> Fields {
        // Words come cut already and only their presence counts: no tokenizer
        // is ever asked, no frequencies, lengths or positions are kept.
        let presence = TextFieldIndexing::default()
            .set_tokenizer("raw")
            .set_index_option(IndexRecordOption::Basic)
            .set_fieldnorms(false);
        let words = TextOptions::default().set_indexing_options(presence);
        Fields {
            id: schema.add_text_field(ID, STRING | FAST),
            places: Places {
                name_words: schema.add_text_field("name_words", words.clone()),
                name_stems: schema.add_text_field("name_stems", words.clone()),
                category_words: schema.add_text_field("category_words", words.clone()),
                category_stems: schema.add_text_field("category_stems", words),
            },
            name_length: schema.add_u64_field(NAME_LENGTH, FAST),
            content: schema.add_text_field("content", STORED),
        }
    }

    fn term(&self, id: &ProductId) -> Term {
        Term::from_field_text(self.id, id.as_str())
    }

    fn document(
        &self,
        id: &ProductId,
        name: &ProductName,
        category: &CategoryName,
        content: &str,
    ) -> TantivyDocument {
        let name = words(name.as_str());
        let category = words(category.as_str());
        let mut document = TantivyDocument::new();
        document.add_text(self.id, id.as_str());
        document.add_u64(self.name_length, name.len() as u64);
        document.add_text(self.content, content);
        let places = &self.places;
        let text = |word: &Word| word.text.clone();
        let stem = |word: &Word| word.stem.clone();
        document.add_pre_tokenized_text(places.name_words, tokens(&name, text));
        document.add_pre_tokenized_text(places.name_stems, tokens(&name, stem));
        document.add_pre_tokenized_text(places.category_words, tokens(&category, text));
        document.add_pre_tokenized_text(places.category_stems, tokens(&category, stem));
        document
    }
}

fn tokens(words: &[Word], text: impl Fn(&Word) -> String) -> PreTokenizedString {
    let token = |(position, word)| Token {
        position,
        text: text(word),
        ..Token::default()
    };
    PreTokenizedString {
        text: String::new(),
        tokens: words.iter().enumerate().map(token).collect(),
    }
}

fn stored_id(id: Option<String>) -> Result<ProductId, IndexError> {
    let id = id.ok_or_else(|| broken("a product has no id"))?;
    ProductId::parse(&id).map_err(|error| broken(&error.to_string()))
}

fn broken(reason: &str) -> IndexError {
    IndexError::Broken {
        reason: reason.to_owned(),
    }
}

impl fmt::Debug for ProductIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProductIndex")
            .field("products", &self.products())
            .field("products_max", &self.products_max)
            .finish_non_exhaustive()
    }
}
