//! What can be wrong with a map, an edit of it, or a key asked of it.

use layout::{Collection, Field};

use super::shard_name::{SHARD_NAME_BYTES_MAX, ShardName};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("the map has no {collection}: add the collection to the map")]
    NoCollection { collection: Collection },
    #[error(
        "{name:?} is not a shard name: use 1 to {max} lower-case letters, digits, - and _",
        max = SHARD_NAME_BYTES_MAX
    )]
    NotAShardName { name: String },
    #[error("{collection} are routed by {field}, which the record lacks: give the field")]
    ShardKeyFieldMissing {
        collection: Collection,
        field: Field,
    },
    #[error("{collection} cannot be routed: {reason}")]
    NotAShardKey {
        collection: Collection,
        reason: String,
    },
    #[error(
        "{key} is routed by {routed_by}, its header says {header_says}: shard-key fields never \
         change, make a new record"
    )]
    ShardKeyDiffers {
        key: String,
        routed_by: String,
        header_says: String,
    },
    #[error("{collection} name no shard-key field: name at least one")]
    NoShardKey { collection: Collection },
    #[error("{field} is no header field of {collection}: route by one that is")]
    NotAHeaderField {
        collection: Collection,
        field: Field,
    },
    #[error("slot {slot} of {collection} has {found} owners: give it exactly one")]
    SlotOwners {
        collection: Collection,
        slot: u16,
        found: usize,
    },
    #[error("the ranges of {collection} are out of order at range {index}: order them by bound")]
    RangesOutOfOrder {
        collection: Collection,
        index: usize,
    },
    #[error("{collection} have {found} {what}, at most {most} are allowed: join or drop some")]
    TooMany {
        collection: Collection,
        what: &'static str,
        found: usize,
        most: usize,
    },
    #[error("table {table} of {collection} has {count} buckets: choose 1 to {most}")]
    BucketCount {
        collection: Collection,
        table: String,
        count: u32,
        most: u32,
    },
    #[error(
        "the map names shard {shard}, which is not configured here: configure it or mend the map"
    )]
    UnknownShard { shard: ShardName },
    #[error("{collection} are not cut by {wanted}: choose a scope that fits the cut")]
    OtherCut {
        collection: Collection,
        wanted: &'static str,
    },
    #[error("the scope names no keys of {collection}: name at least one, bounds in order")]
    EmptyScope { collection: Collection },
    #[error("a range of {collection} starts at {at} already: nothing to split")]
    AlreadySplit { collection: Collection, at: String },
    #[error("{key} of {collection} is not pinned: nothing to unpin")]
    NotPinned { collection: Collection, key: String },
    #[error("the scope is frozen already in {collection}: wait for its move to end")]
    AlreadyFrozen { collection: Collection },
    #[error("the scope is not frozen in {collection}: thaw the same scope that was frozen")]
    NotFrozen { collection: Collection },
    #[error("the stored map cannot be read ({reason}): restore it from a copy")]
    Unreadable { reason: String },
}
