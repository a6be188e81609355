//! Stories of carts and sessions, over memory shards that can fail at any write and
//! that let requests overtake each other in seeded ways. After every write the stage
//! itself looks whether an owner has two active carts.

#![allow(clippy::unwrap_used)]

mod stage;

mod opening;

mod items;

mod merging;

mod sessions;
