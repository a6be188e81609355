//! What a shop may set differently.

use model::Lifetime;
use serde::Deserialize;

const DAY_S: u32 = 86_400;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long a guest's cart lives after its last change of session (C7).
    pub guest_cart_lifetime_s: Lifetime,
    /// How long a session lives after its last touch (S4).
    pub session_lifetime_s: Lifetime,
    /// How old unfinished work of an order must be before a sweeper takes it
    /// for abandoned. Longer than any request may last.
    pub sweep_after_s: Lifetime,
    /// How old the last change of a finished order is before it goes to the history,
    /// where the layout has one. Longer than the clocks of two processes may differ.
    pub archive_after_ms: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let lifetime = |seconds| Lifetime::from_seconds(seconds).expect("the default is in range");
        Settings {
            guest_cart_lifetime_s: lifetime(7 * DAY_S),
            session_lifetime_s: lifetime(7 * DAY_S),
            sweep_after_s: lifetime(60),
            archive_after_ms: 60_000,
        }
    }
}
