//! Records that many readers hold at once, and what was made of them.

use std::any::Any;
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::record::Record;

/// A record that nobody changes any more: read once, held by all who ask for it.
#[derive(Clone, Debug)]
pub struct SharedRecord(Arc<Held>);

#[derive(Debug)]
struct Held {
    record: Record,
    memo: Memo,
}

/// A place beside something that never changes, for what somebody made of it: it
/// is made once and goes when the thing goes.
#[derive(Debug, Default)]
pub struct Memo(OnceLock<Arc<dyn Any + Send + Sync>>);

impl SharedRecord {
    /// What `make` makes of the record: from the last time, if it was made before.
    /// The answer must follow from the record alone.
    pub fn made<T, E>(&self, make: impl FnOnce(&Record) -> Result<T, E>) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
    {
        self.0.memo.made(|| make(&self.0.record))
    }

    /// The record for one's own, copied only if others hold it too.
    pub fn into_record(self) -> Record {
        Arc::try_unwrap(self.0).map_or_else(|held| held.record.clone(), |held| held.record)
    }
}

impl From<Record> for SharedRecord {
    fn from(record: Record) -> SharedRecord {
        let memo = Memo::default();
        SharedRecord(Arc::new(Held { record, memo }))
    }
}

impl Deref for SharedRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0.record
    }
}

impl Borrow<Record> for SharedRecord {
    fn borrow(&self) -> &Record {
        self
    }
}

impl PartialEq for SharedRecord {
    fn eq(&self, other: &SharedRecord) -> bool {
        **self == **other
    }
}

impl Eq for SharedRecord {}

impl Memo {
    /// The first kind of thing that is made is kept; others are made each time.
    pub fn made<T, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
    {
        if let Some(made) = self.0.get() {
            return match made.clone().downcast() {
                Ok(made) => Ok(made),
                Err(_) => make().map(Arc::new),
            };
        }
        let made = Arc::new(make()?);
        // Who was faster made the same, or another kind, which stays.
        let _ = self.0.set(made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_thing_is_made_once_and_another_kind_does_not_get_in_its_way() {
        let memo = Memo::default();
        let text = |text: &str| -> Result<String, Infallible> { Ok(text.to_owned()) };
        assert_eq!(*memo.made(|| text("first")).unwrap(), "first");
        assert_eq!(*memo.made(|| text("second")).unwrap(), "first");
        let number = || Ok::<u32, Infallible>(7);
        assert_eq!(*memo.made(number).unwrap(), 7);
        assert_eq!(*memo.made(|| text("third")).unwrap(), "first");
    }

    #[test]
    fn what_cannot_be_made_is_tried_again() {
        let memo = Memo::default();
        assert_eq!(memo.made(|| Err::<u32, &str>("not yet")), Err("not yet"));
        assert_eq!(memo.made(|| Ok::<u32, &str>(1)), Ok(Arc::new(1)));
    }
}
