//! The stock of one product in one zone and bucket.
//!
//! ```text
//!              take            claim
//! available ─────────▶ reserved ─────────▶ sold
//!     ▲────────────────────┴────────────────┘
//!                        give
//! ```
//! Available is not kept but computed, so that available + reserved + sold = received
//! cannot fail to hold. Each order has at most one reservation here, known by the order's
//! id, which makes every step repeatable: the second time changes nothing (W12).
//!
//! Settled reservations are forgotten, oldest first, and the floor rises to the newest
//! forgotten moment. A take at or below the floor could be the echo of a forgotten one
//! and is refused. This holds because all attempts of an order carry one moment, the
//! order's first `created_at` (W10).

use crate::id::OrderId;
use crate::number;
use crate::quantity::Quantity;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Settled reservations that a stock remembers.
pub const RESERVATIONS_KEPT_MAX: usize = 1024;

/// Reservations that wait for their order to be created or aborted.
pub const RESERVATIONS_HELD_MAX: usize = 1024;

/// Pieces that can ever have arrived in one zone.
pub const RECEIVED_MAX: u64 = 1_000_000_000_000;

/// All pieces that ever arrived in a zone, as a client says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Received(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationState {
    Held,
    Sold,
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    pub quantity: Quantity,
    /// When it was taken, or given back: what the floor is compared with.
    pub at: Timestamp,
    pub state: ReservationState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StockCounts {
    pub received: u64,
    pub available: u64,
    pub reserved: u64,
    pub sold: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stock {
    received: u64,
    reserved: u64,
    sold: u64,
    reservations: BTreeMap<OrderId, Reservation>,
    floor: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    Taken,
    AlreadyTaken,
    AlreadySold,
    /// Given back meanwhile, and that is final: the order was aborted or cancelled.
    AlreadyReturned,
    /// The id holds another quantity: not a repeat, but a different request.
    QuantityDiffers {
        taken: Quantity,
    },
    SoldOut {
        available: u64,
    },
    BelowFloor {
        floor: Timestamp,
    },
    /// Too many orders are undecided here: try another bucket, or later.
    TooManyHeld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    Claimed,
    AlreadySold,
    AlreadyReturned,
    /// Never taken, or settled and forgotten.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveOutcome {
    Given,
    AlreadyReturned,
    /// Never taken: nothing came back, and nothing can be taken any more.
    NothingHeld,
    BelowFloor {
        floor: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StockError {
    #[error("the stock cannot count {pieces} more pieces, correct the delivery")]
    TooMuch { pieces: u64 },
    #[error("the stock has sold {sold} pieces and cannot take back {pieces}, check the order")]
    NotSold { sold: u64, pieces: u64 },
    #[error("{taken} pieces are reserved or sold already, more than {total}, correct the delivery")]
    BelowTaken { taken: u64, total: u64 },
    #[error("only {available} pieces are available, not {pieces}, order fewer")]
    NotAvailable { available: u64, pieces: u64 },
    #[error("available + reserved + sold is not received in {counts:?}, restore a good copy")]
    IdentityBroken { counts: StockCounts },
    #[error("the reservations do not add up to {counts:?}, restore a good copy")]
    ReservationsDiffer { counts: StockCounts },
}

impl Received {
    pub fn pieces(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Received {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number::whole(deserializer, 0..=RECEIVED_MAX).map(Self)
    }
}

impl Stock {
    pub fn restore(
        counts: StockCounts,
        reservations: BTreeMap<OrderId, Reservation>,
        floor: Option<Timestamp>,
    ) -> Result<Self, StockError> {
        let sum = counts
            .reserved
            .checked_add(counts.sold)
            .and_then(|taken| taken.checked_add(counts.available));
        if sum != Some(counts.received) {
            return Err(StockError::IdentityBroken { counts });
        }
        let stock = Self {
            received: counts.received,
            reserved: counts.reserved,
            sold: counts.sold,
            reservations,
            floor,
        };
        // Held ones are never forgotten; sold ones may be.
        if stock.pieces_in(ReservationState::Held) != counts.reserved
            || stock.pieces_in(ReservationState::Sold) > counts.sold
        {
            return Err(StockError::ReservationsDiffer { counts });
        }
        Ok(stock)
    }

    /// Goods arrive. The only change that is not known by an id: it is made under
    /// `change_if(revision)`, and after an unknown outcome the stock is read back.
    pub fn receive(&mut self, pieces: u64) -> Result<(), StockError> {
        self.received = self
            .received
            .checked_add(pieces)
            .ok_or(StockError::TooMuch { pieces })?;
        Ok(())
    }

    /// `at` is the order's first `created_at`, the same in every attempt.
    pub fn take(&mut self, order: &OrderId, quantity: Quantity, at: Timestamp) -> TakeOutcome {
        if let Some(known) = self.reservations.get(order) {
            return match known.state {
                _ if known.quantity != quantity => TakeOutcome::QuantityDiffers {
                    taken: known.quantity,
                },
                ReservationState::Held => TakeOutcome::AlreadyTaken,
                ReservationState::Sold => TakeOutcome::AlreadySold,
                ReservationState::Returned => TakeOutcome::AlreadyReturned,
            };
        }
        let available = self.available();
        match self.floor {
            Some(floor) if at <= floor => TakeOutcome::BelowFloor { floor },
            _ if available < quantity.pieces() => TakeOutcome::SoldOut { available },
            _ if self.held() >= RESERVATIONS_HELD_MAX => TakeOutcome::TooManyHeld,
            _ => {
                self.reserved += quantity.pieces();
                self.insert(order, quantity, at, ReservationState::Held);
                TakeOutcome::Taken
            }
        }
    }

    pub fn claim(&mut self, order: &OrderId) -> ClaimOutcome {
        let Some(known) = self.reservations.get_mut(order) else {
            return ClaimOutcome::Unknown;
        };
        match known.state {
            ReservationState::Sold => ClaimOutcome::AlreadySold,
            ReservationState::Returned => ClaimOutcome::AlreadyReturned,
            ReservationState::Held => {
                known.state = ReservationState::Sold;
                self.reserved -= known.quantity.pieces();
                self.sold += known.quantity.pieces();
                self.forget_oldest_settled();
                ClaimOutcome::Claimed
            }
        }
    }

    /// `at` is when the order was aborted, cancelled or returned, the same in every
    /// attempt. It becomes the reservation's moment: once that is forgotten, the floor
    /// is above it, and a late repeat through `give_forgotten` is refused.
    ///
    /// An order that holds nothing leaves a mark all the same: its take may still be on
    /// its way from a process that slept, and would hold pieces for nobody. An order that
    /// was sold may be forgotten here and comes back by `give_forgotten` instead.
    pub fn give(&mut self, order: &OrderId, quantity: Quantity, at: Timestamp) -> GiveOutcome {
        let Some(known) = self.reservations.get_mut(order) else {
            return match self.floor {
                Some(floor) if at <= floor => GiveOutcome::BelowFloor { floor },
                _ => {
                    self.insert(order, quantity, at, ReservationState::Returned);
                    self.forget_oldest_settled();
                    GiveOutcome::NothingHeld
                }
            };
        };
        match known.state {
            ReservationState::Returned => return GiveOutcome::AlreadyReturned,
            ReservationState::Held => self.reserved -= known.quantity.pieces(),
            ReservationState::Sold => self.sold -= known.quantity.pieces(),
        }
        known.state = ReservationState::Returned;
        known.at = known.at.max(at);
        self.forget_oldest_settled();
        GiveOutcome::Given
    }

    /// Gives back what an order bought so long ago that its reservation is forgotten.
    /// `quantity` and `at` come from the order's record, as for `give`.
    pub fn give_forgotten(
        &mut self,
        order: &OrderId,
        quantity: Quantity,
        at: Timestamp,
    ) -> Result<GiveOutcome, StockError> {
        if self.reservations.contains_key(order) {
            return Ok(self.give(order, quantity, at));
        }
        if let Some(floor) = self.floor
            && at <= floor
        {
            return Ok(GiveOutcome::BelowFloor { floor });
        }
        // Pieces whose reservation is still known belong to other orders.
        let forgotten = self.sold - self.pieces_in(ReservationState::Sold);
        if forgotten < quantity.pieces() {
            return Err(StockError::NotSold {
                sold: forgotten,
                pieces: quantity.pieces(),
            });
        }
        self.sold -= quantity.pieces();
        self.insert(order, quantity, at, ReservationState::Returned);
        self.forget_oldest_settled();
        Ok(GiveOutcome::Given)
    }

    /// Sets how many pieces ever arrived. Absolute, so that a repeat changes nothing.
    pub fn receive_total(&mut self, total: u64) -> Result<(), StockError> {
        let taken = self.reserved + self.sold;
        if total < taken {
            return Err(StockError::BelowTaken { taken, total });
        }
        self.received = total;
        Ok(())
    }

    /// Available to sold in one step, with no reservation to make it repeatable: only
    /// for a commit in which the order's own record refuses the second time.
    pub fn sell(&mut self, quantity: Quantity) -> Result<(), StockError> {
        let available = self.available();
        if available < quantity.pieces() {
            return Err(StockError::NotAvailable {
                available,
                pieces: quantity.pieces(),
            });
        }
        self.sold += quantity.pieces();
        Ok(())
    }

    /// Takes a sale back, guarded as `sell` is.
    pub fn unsell(&mut self, quantity: Quantity) -> Result<(), StockError> {
        let sold = self.sold - self.pieces_in(ReservationState::Sold);
        if sold < quantity.pieces() {
            return Err(StockError::NotSold {
                sold,
                pieces: quantity.pieces(),
            });
        }
        self.sold -= quantity.pieces();
        Ok(())
    }

    pub fn available(&self) -> u64 {
        self.received - self.reserved - self.sold
    }

    pub fn counts(&self) -> StockCounts {
        StockCounts {
            received: self.received,
            available: self.available(),
            reserved: self.reserved,
            sold: self.sold,
        }
    }

    pub fn reservation(&self, order: &OrderId) -> Option<&Reservation> {
        self.reservations.get(order)
    }

    pub fn reservations(&self) -> impl Iterator<Item = (&OrderId, &Reservation)> {
        self.reservations.iter()
    }

    pub fn floor(&self) -> Option<Timestamp> {
        self.floor
    }

    fn held(&self) -> usize {
        let held = |known: &&Reservation| known.state == ReservationState::Held;
        self.reservations.values().filter(held).count()
    }

    fn pieces_in(&self, state: ReservationState) -> u64 {
        self.reservations
            .values()
            .filter(|known| known.state == state)
            .map(|known| known.quantity.pieces())
            .sum()
    }

    fn insert(
        &mut self,
        order: &OrderId,
        quantity: Quantity,
        at: Timestamp,
        state: ReservationState,
    ) {
        let reservation = Reservation {
            quantity,
            at,
            state,
        };
        self.reservations.insert(order.clone(), reservation);
    }

    fn forget_oldest_settled(&mut self) {
        while self.reservations.len() - self.held() > RESERVATIONS_KEPT_MAX {
            let oldest = self
                .reservations
                .iter()
                .filter(|(_, known)| known.state != ReservationState::Held)
                .min_by_key(|(order, known)| (known.at, *order))
                .map(|(order, known)| (order.clone(), known.at));
            let Some((order, at)) = oldest else {
                return;
            };
            self.reservations.remove(&order);
            self.floor = self.floor.max(Some(at));
        }
    }
}
