//! Carts as visitors see them through the shop: own items while the cart is open, and
//! an end that is final.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{Cart, CartId, CartOwner, CartPart, CartStatus, ShopperSessionId};
use shop_service::ShopError;

use super::told;
use crate::ledger::{Deed, Told, Wish};
use crate::linear::{Call, Specification};
use crate::recording::History;

pub(super) fn check(history: &History) -> Vec<String> {
    let shown = history.deeds.iter().filter_map(|deed| match &deed.told {
        Told::Cart { cart, .. } => Some(cart.id()),
        _ => None,
    });
    let carts: BTreeSet<&CartId> = shown.collect();
    let one = |cart: &CartId| {
        let guest = guest_of(history, cart);
        let deeds = history.deeds.iter();
        let calls = deeds.flat_map(|deed| calls(deed, cart, guest));
        told(cart, &OneCart, &calls.collect::<Vec<_>>())
    };
    carts.into_iter().filter_map(one).collect()
}

fn guest_of<'a>(history: &'a History, id: &CartId) -> Option<&'a ShopperSessionId> {
    history.deeds.iter().find_map(|deed| match &deed.told {
        Told::Cart { cart, .. } if cart.id() == id => match &cart.header().owner {
            CartOwner::Guest(guest) => Some(guest),
            CartOwner::User(_) => None,
        },
        _ => None,
    })
}

struct OneCart;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Standing {
    closed: bool,
    own: BTreeMap<String, u32>,
}

#[derive(Debug)]
enum Act {
    Put(String, u32),
    Remove(String),
    Close,
    Read(Standing),
    /// What an answer to a change shows of the other items.
    SawBeside {
        changed: String,
        own: BTreeMap<String, u32>,
    },
    ToldClosed,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn standing(cart: &Cart) -> Standing {
    let own = cart.parts().filter_map(|part| match part {
        CartPart::Own(line) => Some((line.product.to_string(), line.quantity.get())),
        CartPart::Contribution { .. } => None,
    });
    Standing {
        closed: cart.header().status != CartStatus::Active,
        own: own.collect(),
    }
}

fn calls(deed: &Deed, of: &CartId, guest: Option<&ShopperSessionId>) -> Vec<Call<Act>> {
    let call = |operation: Act, answered: bool| Call {
        operation,
        invoked: deed.invoked,
        returned: deed.ended.filter(|_| answered),
    };
    let change = |act: Act, product: &str| {
        let mut calls = vec![call(act, deed.is_acknowledged())];
        if let Told::Cart { cart, .. } = &deed.told {
            let saw = Act::SawBeside {
                changed: product.to_owned(),
                own: standing(cart).own,
            };
            calls.push(call(saw, true));
        }
        calls
    };
    if let Told::Refused { why } = &deed.told {
        let closed = matches!(why, ShopError::CartClosed { cart } if cart == of);
        return closed
            .then(|| call(Act::ToldClosed, true))
            .into_iter()
            .collect();
    }
    match (&deed.wish, &deed.told) {
        (
            Wish::PutItem {
                cart,
                product,
                pieces,
            },
            _,
        ) if cart == of => {
            let product = product.as_str();
            change(Act::Put(product.to_owned(), *pieces), product)
        }
        (Wish::RemoveItem { cart, product }, _) if cart == of => {
            let product = product.as_str();
            change(Act::Remove(product.to_owned()), product)
        }
        (Wish::CloseCart { cart, .. }, _) if cart == of => {
            vec![call(Act::Close, deed.is_acknowledged())]
        }
        // The cart is closed before or after the answer, or by a sweeper, or not at all.
        (Wish::PlaceOrder(wish), _) if wish.cart.as_ref() == Some(of) => {
            vec![call(Act::Close, false)]
        }
        (Wish::SignIn { guest: session, .. } | Wish::CloseSession { session }, _)
            if Some(session) == guest =>
        {
            vec![call(Act::Close, false)]
        }
        (Wish::OpenCart { .. } | Wish::ReadCart { .. }, Told::Cart { cart, .. })
            if cart.id() == of =>
        {
            vec![call(Act::Read(standing(cart)), true)]
        }
        _ => Vec::new(),
    }
}

impl Specification for OneCart {
    type State = Standing;
    type Operation = Act;

    fn first(&self) -> Standing {
        Standing::default()
    }

    fn observes(&self, act: &Act) -> bool {
        match act {
            Act::Read(_) | Act::SawBeside { .. } | Act::ToldClosed => true,
            Act::Put(..) | Act::Remove(_) | Act::Close => false,
        }
    }

    fn step(&self, state: &Standing, act: &Act) -> Option<Standing> {
        let mut next = state.clone();
        let holds = match act {
            Act::Put(product, pieces) => {
                next.own.insert(product.clone(), *pieces);
                !state.closed
            }
            Act::Remove(product) => {
                next.own.remove(product);
                !state.closed
            }
            Act::Close => {
                next.closed = true;
                true
            }
            Act::Read(shown) => state == shown,
            Act::SawBeside { changed, own } => {
                let others = |own: &BTreeMap<String, u32>| {
                    let mut own = own.clone();
                    own.remove(changed);
                    own
                };
                !state.closed && others(&state.own) == others(own)
            }
            Act::ToldClosed => state.closed,
        };
        holds.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Timestamp;

    use super::*;
    use crate::checks::story::Story;
    use crate::scenery::noun;

    const OPEN: CartStatus = CartStatus::Active;

    fn now() -> Timestamp {
        Timestamp::from_unix_micros(0)
    }

    fn cart() -> Cart {
        Cart::for_user(&noun("dan"), 1, now())
    }

    fn put(pieces: u32) -> Wish {
        Wish::PutItem {
            cart: cart().id().clone(),
            product: noun("mug"),
            pieces,
        }
    }

    fn close() -> Wish {
        Wish::CloseCart {
            cart: cart().id().clone(),
            status: CartStatus::Abandoned,
        }
    }

    fn read() -> Wish {
        Wish::ReadCart {
            cart: cart().id().clone(),
        }
    }

    fn shown(status: CartStatus) -> Told {
        let mut cart = cart();
        if status != OPEN {
            cart.abandon(now()).expect("it is open");
        }
        Told::Cart { made: None, cart }
    }

    fn found(deeds: Vec<(Wish, Told)>) -> usize {
        let mut story = Story::begin();
        for (wish, told) in deeds {
            story.visits(wish, told);
        }
        check(&story.history).len()
    }

    #[test]
    fn a_cart_that_was_told_closed_takes_nothing_and_stays_closed() {
        let closed = || Told::Refused {
            why: ShopError::CartClosed {
                cart: cart().id().clone(),
            },
        };
        let abandoned = CartStatus::Abandoned;
        assert_eq!(
            found(vec![(close(), shown(abandoned)), (put(1), closed())]),
            0
        );
        assert_eq!(
            found(vec![(close(), shown(abandoned)), (put(1), shown(OPEN))]),
            1
        );
        assert_eq!(
            found(vec![(read(), shown(OPEN)), (put(1), closed())]),
            1,
            "nobody closed it"
        );
        let unknown = || Told::Unknown {
            why: "lost".to_owned(),
        };
        assert_eq!(
            found(vec![
                (read(), shown(OPEN)),
                (close(), unknown()),
                (put(1), closed())
            ]),
            0
        );
        assert_eq!(
            found(vec![
                (close(), unknown()),
                (put(1), closed()),
                (read(), shown(OPEN))
            ]),
            1,
            "closed and open again"
        );
    }

    #[test]
    fn an_item_that_was_put_is_shown() {
        assert_eq!(found(vec![(put(1), shown(OPEN)), (read(), shown(OPEN))]), 1);
        let lost = Told::Nothing;
        assert_eq!(found(vec![(put(1), lost), (read(), shown(OPEN))]), 0);
    }
}
