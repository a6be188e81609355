//! The shipped mover in the simulated world: an operator who starts moves and changes their mind, and in every
//! process movers that stand by, as `caravan serve` runs them. They stand still and die at any await.

mod fickle;

mod planning;

mod standing_by;

mod operator;

pub use operator::{Operator, bring_to_rest};
pub use planning::{Picked, pick};
pub use standing_by::StandingBy;
