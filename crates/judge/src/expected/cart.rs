//! Carts: the last acknowledged change of each item, and merges that count once.

use std::collections::BTreeMap;

use super::Expected;
use crate::ledger::Wish;
use crate::verdict::Verdict;
use crate::wire::{Cart, CartStatus, Login, MergeOutcome, Owner};

/// A state that a cart may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    pub status: CartStatus,
    /// Pieces by product.
    pub items: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub struct ExpectedCart {
    pub owner: Owner,
    pub worlds: Vec<World>,
    /// Its items went into a user's cart: what it still shows of them is its own matter.
    pub merged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put { product_id: String, quantity: u64 },
    Remove { product_id: String },
    Close(CartStatus),
}

pub(super) fn change_of(wish: &Wish) -> Option<(String, Change)> {
    match wish.clone() {
        Wish::PutItem {
            cart_id,
            product_id,
            quantity,
        } => Some((
            cart_id,
            Change::Put {
                product_id,
                quantity,
            },
        )),
        Wish::RemoveItem {
            cart_id,
            product_id,
        } => Some((cart_id, Change::Remove { product_id })),
        Wish::CloseCart { cart_id, status } => Some((cart_id, Change::Close(status))),
        _ => None,
    }
}

impl World {
    pub fn of(cart: &Cart) -> World {
        let items = cart
            .items
            .iter()
            .map(|item| (item.product_id.clone(), item.quantity));
        World {
            status: cart.status,
            items: items.collect(),
        }
    }

    fn empty() -> World {
        World {
            status: CartStatus::Active,
            items: BTreeMap::new(),
        }
    }

    fn changed(&self, change: &Change) -> World {
        let mut world = self.clone();
        match change {
            Change::Put {
                product_id,
                quantity,
            } => {
                world.items.insert(product_id.clone(), *quantity);
            }
            Change::Remove { product_id } => {
                world.items.remove(product_id);
            }
            Change::Close(status) => world.status = *status,
        }
        world
    }

    fn with_pieces_of(&self, guest: &World) -> World {
        let mut world = self.clone();
        for (product, pieces) in &guest.items {
            *world.items.entry(product.clone()).or_default() += pieces;
        }
        world
    }
}

impl ExpectedCart {
    fn new(owner: Owner) -> ExpectedCart {
        ExpectedCart {
            owner,
            worlds: vec![World::empty()],
            merged: false,
        }
    }

    pub(super) fn has(&mut self, change: &Change) {
        self.worlds = self
            .worlds
            .iter()
            .map(|world| world.changed(change))
            .collect();
    }

    pub(super) fn may_have(&mut self, change: Change) {
        let changed: Vec<_> = self
            .worlds
            .iter()
            .map(|world| world.changed(&change))
            .collect();
        for world in changed {
            if !self.worlds.contains(&world) {
                self.worlds.push(world);
            }
        }
    }

    /// Leaves the worlds that agree with what was shown. If none does, what was shown goes on, so that one
    /// mistake is not counted with every later change.
    pub fn show(&mut self, cart: &Cart, verdict: &mut Verdict) {
        let shown = World::of(cart);
        let agrees = |world: &World| {
            world.status == shown.status && (self.merged || world.items == shown.items)
        };
        if self.worlds.iter().any(agrees) {
            self.worlds.retain(|world| {
                world.status == shown.status && (self.merged || world.items == shown.items)
            });
            return;
        }
        let lost = self.worlds.iter().all(|world| {
            world
                .items
                .iter()
                .any(|(product, _)| !shown.items.contains_key(product))
        });
        let what = format!(
            "cart {} of {:?} shows {shown:?}, acknowledged was {:?}",
            cart.cart_id, self.owner, self.worlds
        );
        if lost {
            verdict.lost(what);
        } else {
            verdict.wrong(what);
        }
        self.worlds = vec![shown];
    }

    fn is_surely_active(&self) -> bool {
        self.worlds
            .iter()
            .all(|world| world.status == CartStatus::Active)
    }
}

impl Expected {
    pub(super) fn cart_changed(&mut self, cart_id: &str, cart: &Cart, change: Change) {
        let Some(expected) = self.carts.get_mut(cart_id) else {
            let what = format!("cart {cart_id} was changed but never opened");
            return self.verdict.wrong(what);
        };
        expected.has(&change);
        expected.show(cart, &mut self.verdict);
    }

    pub(super) fn cart_shown(&mut self, cart_id: &str, cart: &Cart) {
        match self.carts.get_mut(cart_id) {
            Some(expected) => expected.show(cart, &mut self.verdict),
            None => self
                .verdict
                .wrong(format!("cart {cart_id} was shown but never opened")),
        }
    }

    pub(super) fn cart_opened(&mut self, owner: Owner, cart: &Cart) {
        self.make_known(&owner, &cart.cart_id);
        if let Some(expected) = self.carts.get_mut(&cart.cart_id) {
            expected.show(cart, &mut self.verdict);
        }
    }

    /// A cart that was not heard of must be a new one, and the owner's only active one.
    fn make_known(&mut self, owner: &Owner, cart_id: &str) {
        if self.carts.contains_key(cart_id) {
            return;
        }
        if let Some(earlier) = self.opened.get(owner)
            && self
                .carts
                .get(earlier)
                .is_some_and(ExpectedCart::is_surely_active)
        {
            let what = format!("{owner:?} has two active carts, {earlier} and {cart_id}");
            self.verdict.doubled(what);
        }
        self.opened.insert(owner.clone(), cart_id.to_owned());
        self.carts
            .insert(cart_id.to_owned(), ExpectedCart::new(owner.clone()));
    }

    pub(super) fn signed_in(&mut self, user_id: &str, guest_session_id: &str, login: &Login) {
        self.session_active(&login.session);
        let resolves =
            |(user, guest): &(String, String)| user == user_id && guest == guest_session_id;
        let was_unresolved = self.unresolved_logins.iter().any(resolves);
        self.unresolved_logins.retain(|login| !resolves(login));
        let guest_id = self
            .opened
            .get(&Owner::SessionId(guest_session_id.to_owned()))
            .cloned();
        let guest = guest_id.as_ref().and_then(|id| self.carts.get(id)).cloned();
        let had_items = guest.as_ref().is_some_and(|guest| {
            !guest.merged && guest.worlds.iter().all(|world| !world.items.is_empty())
        });
        let what = format!("signing {user_id} in with the cart of guest {guest_session_id}");
        let outcome = login.merge.outcome;
        let merges = match outcome {
            MergeOutcome::Merged => true,
            MergeOutcome::AlreadyMerged if was_unresolved => true,
            MergeOutcome::AlreadyMerged | MergeOutcome::NothingToMerge => {
                if had_items {
                    self.verdict
                        .lost(format!("{what}: answered {outcome:?}, its items are gone"));
                }
                false
            }
            MergeOutcome::Refused => {
                self.verdict
                    .wrong(format!("{what}: refused, though both carts are small"));
                false
            }
        };
        let Some(cart) = &login.cart else {
            if merges && had_items {
                self.verdict
                    .lost(format!("{what}: merged, but the user has no cart"));
            }
            return;
        };
        self.make_known(&Owner::UserId(user_id.to_owned()), &cart.cart_id);
        if merges && let Some(guest_id) = guest_id {
            self.merge(&guest_id, &cart.cart_id);
        }
        if let Some(expected) = self.carts.get_mut(&cart.cart_id) {
            expected.show(cart, &mut self.verdict);
        }
    }

    fn merge(&mut self, guest_id: &str, user_cart_id: &str) {
        let Some(guest) = self.carts.get_mut(guest_id) else {
            return;
        };
        if guest.merged {
            return;
        }
        let given = guest.worlds.clone();
        guest.has(&Change::Close(CartStatus::Abandoned));
        guest.merged = true;
        if let Some(user_cart) = self.carts.get_mut(user_cart_id) {
            let merged = user_cart
                .worlds
                .iter()
                .flat_map(|world| given.iter().map(|guest| world.with_pieces_of(guest)));
            user_cart.worlds = merged.collect();
        }
    }

    /// A merge that was cut off is sent again before its carts are judged.
    pub(super) fn login_unknown(&mut self, user_id: String, guest_session_id: String) {
        let owner = Owner::SessionId(guest_session_id.clone());
        let merged_before = self
            .opened
            .get(&owner)
            .and_then(|id| self.carts.get(id))
            .is_none_or(|guest| guest.merged);
        if !merged_before {
            self.unresolved_logins.push((user_id, guest_session_id));
        }
    }
}
