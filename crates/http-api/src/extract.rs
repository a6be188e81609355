//! What comes in, checked once: bodies, queries, paths and headers become the model's
//! types here, or a problem that names the field.

mod asked;
mod headers;
mod json;
mod path;
mod query;

pub(crate) use asked::Asked;
pub(crate) use headers::{CARAVAN_TOKEN, Conditions, OrderKey, Precondition, Seen};
pub(crate) use json::{Json, Object};
pub(crate) use path::{PathId, PathIds};
pub(crate) use query::{FromParameter, Query, QueryParameters, query_parameters};
