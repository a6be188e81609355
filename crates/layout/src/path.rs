//! Access paths: the ways the shop asks for records, and the operations behind them.
//!
//! An access path is a question ("the orders of this user, newest first"),
//! independent of any table. The planner finds the table that answers it.

use std::fmt;

use crate::collection::Collection;
use crate::field::Field;
use crate::key::Direction;

/// The status a cart has while its owner fills it.
pub const STATUS_ACTIVE: &str = "active";

/// The settlement of an order while steps of it are still to be done (W11).
pub const SETTLEMENT_OPEN: &str = "open";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessPath {
    CartById,
    ActiveCartByUser,
    ActiveCartBySession,
    OrderById,
    OrdersByUser,
    OrdersByPeriod,
    OrdersOpen,
    ProductById,
    ProductsByCategory,
    SessionById,
    SessionsByUser,
}

/// What an access path asks for.
#[derive(Clone, Copy, Debug)]
pub struct PathShape {
    pub collection: Collection,
    /// Fields the caller gives exactly.
    pub equals: &'static [Field],
    /// A field with one value that is always asked for.
    pub only: Option<(Field, &'static str)>,
    /// The field that orders the answer and may be cut to a range; ties go by id.
    pub sort: Option<(Field, Direction)>,
}

/// The shop's operations, by the ids of the requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C7,
    C8,
    C9,
    O1,
    O2,
    O3,
    O4,
    O5,
    O6,
    O7,
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    S1,
    S2,
    S3,
    S4,
    S5,
}

impl AccessPath {
    pub const ALL: [AccessPath; 11] = [
        AccessPath::CartById,
        AccessPath::ActiveCartByUser,
        AccessPath::ActiveCartBySession,
        AccessPath::OrderById,
        AccessPath::OrdersByUser,
        AccessPath::OrdersByPeriod,
        AccessPath::OrdersOpen,
        AccessPath::ProductById,
        AccessPath::ProductsByCategory,
        AccessPath::SessionById,
        AccessPath::SessionsByUser,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            AccessPath::CartById => "cart by id",
            AccessPath::ActiveCartByUser => "active cart by user",
            AccessPath::ActiveCartBySession => "active cart by session",
            AccessPath::OrderById => "order by id",
            AccessPath::OrdersByUser => "orders by user",
            AccessPath::OrdersByPeriod => "orders by period",
            AccessPath::OrdersOpen => "orders with open steps",
            AccessPath::ProductById => "product by id",
            AccessPath::ProductsByCategory => "products by category",
            AccessPath::SessionById => "session by id",
            AccessPath::SessionsByUser => "sessions by user",
        }
    }

    pub const fn shape(self) -> PathShape {
        use Collection::{Carts, Orders, Products, Sessions};
        use Direction::{Ascending, Descending};
        let (collection, equals, only, sort): (_, &'static [Field], _, _) = match self {
            AccessPath::CartById => (Carts, &[Field::CartId], None, None),
            AccessPath::ActiveCartByUser => (
                Carts,
                &[Field::UserId],
                Some((Field::Status, STATUS_ACTIVE)),
                None,
            ),
            AccessPath::ActiveCartBySession => (
                Carts,
                &[Field::SessionId],
                Some((Field::Status, STATUS_ACTIVE)),
                None,
            ),
            AccessPath::OrderById => (Orders, &[Field::OrderId], None, None),
            AccessPath::OrdersByUser => (
                Orders,
                &[Field::UserId],
                None,
                Some((Field::CreatedAt, Descending)),
            ),
            AccessPath::OrdersByPeriod => (Orders, &[], None, Some((Field::CreatedAt, Descending))),
            AccessPath::OrdersOpen => (
                Orders,
                &[],
                Some((Field::Settlement, SETTLEMENT_OPEN)),
                Some((Field::CreatedAt, Ascending)),
            ),
            AccessPath::ProductById => (Products, &[Field::ProductId], None, None),
            AccessPath::ProductsByCategory => (
                Products,
                &[Field::Category],
                None,
                Some((Field::Price, Ascending)),
            ),
            AccessPath::SessionById => (Sessions, &[Field::SessionId], None, None),
            AccessPath::SessionsByUser => (
                Sessions,
                &[Field::UserId],
                None,
                Some((Field::CreatedAt, Descending)),
            ),
        };
        PathShape {
            collection,
            equals,
            only,
            sort,
        }
    }

    /// The path that finds a record of the collection by its id.
    pub const fn by_id(collection: Collection) -> AccessPath {
        match collection {
            Collection::Carts => AccessPath::CartById,
            Collection::Orders => AccessPath::OrderById,
            Collection::Products => AccessPath::ProductById,
            Collection::Sessions => AccessPath::SessionById,
        }
    }

    pub fn of(collection: Collection) -> impl Iterator<Item = AccessPath> {
        AccessPath::ALL
            .into_iter()
            .filter(move |path| path.shape().collection == collection)
    }
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    pub const ALL: [Operation; 27] = {
        use Operation::*;
        [
            C1, C2, C3, C4, C5, C6, C7, C8, C9, O1, O2, O3, O4, O5, O6, O7, P1, P2, P3, P4, P5, P6,
            S1, S2, S3, S4, S5,
        ]
    };

    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL
            .into_iter()
            .find(|operation| format!("{operation:?}") == name)
    }

    /// The collection that the operation is about, which is not every one it uses.
    pub const fn home(self) -> Collection {
        use Operation::*;
        match self {
            C1 | C2 | C3 | C4 | C5 | C6 | C7 | C8 | C9 => Collection::Carts,
            O1 | O2 | O3 | O4 | O5 | O6 | O7 => Collection::Orders,
            P1 | P2 | P3 | P4 | P5 | P6 => Collection::Products,
            S1 | S2 | S3 | S4 | S5 => Collection::Sessions,
        }
    }

    /// Fields that the caller of the operation has at hand beyond those its paths
    /// name, and by which a record's shard is found: a checkout knows its user,
    /// and the category of every line.
    pub const fn also_given(self) -> &'static [Field] {
        match self {
            Operation::O1 => &[Field::UserId, Field::Category],
            Operation::P5 | Operation::P6 => &[Field::Category],
            _ => &[],
        }
    }

    pub fn uses(self, collection: Collection) -> bool {
        self.home() == collection
            || self
                .paths()
                .iter()
                .any(|path| path.shape().collection == collection)
    }

    pub const fn title(self) -> &'static str {
        match self {
            Operation::C1 => "create a cart",
            Operation::C2 => "read the active cart",
            Operation::C3 => "add or replace an item",
            Operation::C4 => "remove an item",
            Operation::C5 => "merge the guest cart at sign-in",
            Operation::C6 => "mark a cart ordered",
            Operation::C7 => "expire guest carts",
            Operation::C8 => "limit a cart",
            Operation::C9 => "change different items at once",
            Operation::O1 => "create an order and take its stock",
            Operation::O2 => "history of one user",
            Operation::O3 => "one order by id",
            Operation::O4 => "change an order's status",
            Operation::O5 => "orders of a period",
            Operation::O6 => "geo-zone, address and lines of an order",
            Operation::O7 => "a user with very many orders",
            Operation::P1 => "product page",
            Operation::P2 => "search by category and price",
            Operation::P3 => "search by name",
            Operation::P4 => "stock per zone",
            Operation::P5 => "frequent stock changes",
            Operation::P6 => "price at checkout",
            Operation::S1 => "open, touch and close a session",
            Operation::S2 => "read a session",
            Operation::S3 => "all sessions of a user",
            Operation::S4 => "expire sessions",
            Operation::S5 => "details of a session",
        }
    }

    /// The paths without which the operation cannot be answered. P3 is answered
    /// by the shop's own search index, which is fed from the journal.
    pub const fn paths(self) -> &'static [AccessPath] {
        use AccessPath::*;
        match self {
            Operation::C1 | Operation::C2 => &[ActiveCartByUser, ActiveCartBySession],
            Operation::C3
            | Operation::C4
            | Operation::C6
            | Operation::C7
            | Operation::C8
            | Operation::C9 => &[CartById],
            Operation::C5 => &[CartById, ActiveCartByUser, ActiveCartBySession],
            Operation::O1 => &[OrderById, OrdersOpen, ProductById],
            Operation::O2 | Operation::O7 => &[OrdersByUser],
            Operation::O3 | Operation::O4 | Operation::O6 => &[OrderById],
            Operation::O5 => &[OrdersByPeriod],
            Operation::P1 | Operation::P4 | Operation::P5 | Operation::P6 => &[ProductById],
            Operation::P2 => &[ProductsByCategory],
            Operation::P3 => &[],
            Operation::S1 | Operation::S2 | Operation::S4 | Operation::S5 => &[SessionById],
            Operation::S3 => &[SessionsByUser],
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({})", self.title())
    }
}
