//! Every request ends in time, and no record says that it belongs elsewhere.

use std::time::Duration;

use engine_api::Record;
use layout::{ShardKey, Value};

use crate::recording::{End, History};
use crate::scenery::routing_field;

/// Longer than holds and retries can add up to.
const REQUEST_MAX: Duration = Duration::from_secs(60);

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for operation in &history.operations {
        let took = operation
            .ended_at
            .map(|ended_at| ended_at - operation.invoked_at);
        if took.is_some_and(|took| took > REQUEST_MAX) {
            breaches.push(format!("{} took {took:?}", operation.intent));
        }
        if let End::Failed { why } = &operation.end
            && why.contains("no end")
        {
            breaches.push(format!("{}: {why}", operation.intent));
        }
    }
    let applied = history.applied.iter().flat_map(|applied| &applied.images);
    let images = applied
        .filter_map(|(_, after)| after.as_ref())
        .chain(&history.images);
    breaches.extend(images.filter_map(elsewhere));
    breaches
}

/// A header whose routing field is not what the record is routed by (W8).
fn elsewhere(image: &Record) -> Option<String> {
    let says = image
        .header
        .content
        .live()?
        .text(routing_field(image.key.collection));
    let key = ShardKey::of(&[Value::text(says.unwrap_or_default())]).ok()?;
    (key != image.key.shard_key).then(|| {
        format!(
            "{} is routed by {}, its header says {key}",
            image.key, image.key.shard_key
        )
    })
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::recording::Intent;
    use crate::scenery::{Marks, cart, cart_header};

    #[test]
    fn a_request_that_lasts_and_a_record_of_another_owner_are_found() {
        let mut story = Story::begin();
        let number = story.asks(Intent::Read(cart("ada")));
        story.is_told(number, End::Image(None));
        assert!(check(&story.history).is_empty());
        story.history.operations[number].ended_at = Some(Duration::from_secs(61));
        let content = Content::Live(cart_header("bob", "active", &Marks::default()));
        let header = Header {
            revision: revision(2),
            cleared: revision(1),
            content,
        };
        let image = Record {
            key: cart("ada"),
            header,
            parts: Default::default(),
        };
        story.history.images.push(image);
        assert_eq!(check(&story.history).len(), 2);
    }
}
