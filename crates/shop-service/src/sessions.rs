//! Shopper sessions (S1–S5), and signing in.

use std::net::IpAddr;

use engine_api::{
    Aged, Change, Freshness, Guard, Header, Outcome, PartChange, PartsChange, Query, Revision,
    SharedRecord, SortRange,
};
use layout::path::STATUS_ACTIVE;
use layout::{AccessPath, Collection, Field, Fields, Value};
use model::{
    Attributes, CartOwner, CartStatus, DeviceType, SessionDetails, SessionError, ShopperSession,
    ShopperSessionId, UserAgent, UserId, ZoneName,
};
use router::{MapError, RouterError};

use crate::carts::{Merge, MergeEnd};
use crate::error::{Noun, ShopError};
use crate::records::{CartRecord, SessionRecord, session_header, session_of, session_parts};
use crate::shop::{ATTEMPTS_MAX, Listing, PageWish, Shop, Stored};

/// How often an id is drawn. Drawing one that is taken twice in a row means that the
/// source of chance is broken.
const DRAWS_MAX: u32 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionWish {
    pub user: Option<UserId>,
    pub ip_address: Option<IpAddr>,
    pub user_agent: Option<UserAgent>,
    pub device_type: Option<DeviceType>,
    pub geo_zone: Option<ZoneName>,
    pub attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub session: Stored<ShopperSession>,
    pub merge: Merge,
}

impl Shop {
    pub async fn open_session(
        &self,
        wish: SessionWish,
    ) -> Result<Stored<ShopperSession>, ShopError> {
        for _ in 0..DRAWS_MAX {
            let details = details(self.draw_id(), wish.clone());
            let lifetime = self.settings.session_lifetime_s;
            let session = ShopperSession::open(details, lifetime, self.now());
            let header = session_header(&session);
            let change = Change::CreateIfAbsent {
                key: self.key(Collection::Sessions, session.id().as_str(), &header)?,
                header,
                parts: session_parts(&session).into(),
            };
            match self.router.write(change, Revision::ZERO).await?.outcome {
                Outcome::Done { revision } => {
                    return Ok(Stored::new(session, revision));
                }
                Outcome::Exists { .. } => {}
                outcome => return Err(unforeseen(session.id(), &outcome)),
            }
        }
        Err(ShopError::Contended)
    }

    /// Live, or why not.
    pub async fn session(
        &self,
        id: &ShopperSessionId,
    ) -> Result<Stored<ShopperSession>, ShopError> {
        Ok(self.live_session(id).await?.stored())
    }

    /// Keeps the session and a guest's cart in it alive (S1, S4, C7).
    pub async fn touch_session(
        &self,
        id: &ShopperSessionId,
        seen: Revision,
    ) -> Result<Stored<ShopperSession>, ShopError> {
        let mut record = self.live_session(id).await?;
        let lifetime = self.settings.session_lifetime_s;
        let expired = SessionError::Expired {
            expires_at: record.session.times().expires_at,
        };
        record.session.change().touch(lifetime, self.now())?;
        let parts = session_parts(&record.session);
        let change = Change::Patch {
            key: record.key.clone(),
            guard: Guard {
                header: vec![(Field::Status, Value::text(STATUS_ACTIVE))],
            },
            parts: parts
                .map(|(key, fields)| (key, PartChange::Set(fields)))
                .into(),
        };
        let floor = seen.max(record.newest_revision);
        match self.router.write(change, floor).await?.outcome {
            Outcome::Done { revision } => record.newest_revision = revision,
            Outcome::GuardFailed { header } => return Err(closed(id, &header)),
            Outcome::NoRecord => return Err(expired.into()),
            outcome => return Err(unforeseen(id, &outcome)),
        }
        self.extend_cart_of(&record.session, seen).await?;
        Ok(record.stored())
    }

    /// Closing again changes nothing, but ends a cart that an interrupted close left.
    /// Answers the newest change: of the session, or of its cart.
    pub async fn close_session(
        &self,
        id: &ShopperSessionId,
        seen: Revision,
    ) -> Result<Revision, ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let record = self.known_session(id).await?;
            let found = record.newest_revision;
            match record.session.check_live(self.now()) {
                Ok(()) => {}
                Err(SessionError::Closed { .. }) => {
                    let ended = self.abandon_cart_of(&record.session, seen).await?;
                    return Ok(found.max(ended));
                }
                // Its cart expired with it.
                Err(SessionError::Expired { .. }) => return Ok(found),
                Err(error @ SessionError::TimesContradict { .. }) => return Err(error.into()),
            }
            let mut session = record.session;
            session.change().close(self.now());
            let change = Change::ChangeIf {
                key: record.key,
                expected: record.header_revision,
                header: session_header(&session),
                parts: PartsChange::Keep,
            };
            let floor = seen.max(record.newest_revision);
            match self.router.write(change, floor).await?.outcome {
                // Only now: a cart that is being opened for the session looks whether
                // it still lives after it was created.
                Outcome::Done { revision } => {
                    let ended = self.abandon_cart_of(&session, seen).await?;
                    return Ok(revision.max(ended));
                }
                Outcome::Conflict { .. } | Outcome::NoRecord => {}
                outcome => return Err(unforeseen(id, &outcome)),
            }
        }
        Err(ShopError::Contended)
    }

    /// S3, newest first, closed ones included until they expire.
    pub async fn sessions_of_user(
        &self,
        user: &UserId,
        page: PageWish,
    ) -> Result<Listing<ShopperSession>, ShopError> {
        self.listing(&query_of_user(user, page), session_of).await
    }

    /// Opens a session for the user, and merges the guest's cart if one is named (C5).
    pub async fn login(
        &self,
        wish: SessionWish,
        user: &UserId,
        guest: Option<&ShopperSessionId>,
        seen: Revision,
    ) -> Result<Login, ShopError> {
        let wish = SessionWish {
            user: Some(user.clone()),
            ..wish
        };
        let session = self.open_session(wish).await?;
        let merge = match guest {
            Some(guest) => self.merge_guest_cart(guest, user, seen).await?,
            None => Merge {
                end: MergeEnd::NothingToMerge,
                cart: self
                    .find_active(&CartOwner::User(user.clone()))
                    .await?
                    .map(CartRecord::stored),
            },
        };
        Ok(Login { session, merge })
    }

    fn draw_id(&self) -> ShopperSessionId {
        let (high, low) = (self.world.random(), self.world.random());
        ShopperSessionId::parse(&format!("s-{high:016x}{low:016x}"))
            .expect("34 letters and digits are an id")
    }

    async fn live_session(&self, id: &ShopperSessionId) -> Result<SessionRecord, ShopError> {
        let record = self.known_session(id).await?;
        record.session.check_live(self.now())?;
        Ok(record)
    }

    /// The session as it is stored, also when it has ended. Where the layout does not
    /// find it by its id alone, an expired one is not found any more.
    async fn known_session(&self, id: &ShopperSessionId) -> Result<SessionRecord, ShopError> {
        let found = self.found_session_aged(id, Freshness::Latest).await?;
        known(id, found.answer)
    }

    pub(crate) async fn found_session_aged(
        &self,
        id: &ShopperSessionId,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, ShopError> {
        let by_id = self.key(Collection::Sessions, id.as_str(), &Fields::new());
        match by_id {
            Ok(key) => Ok(self.router.image_aged(&key, freshness).await?),
            Err(ShopError::Store(RouterError::Map(MapError::ShardKeyFieldMissing { .. }))) => {
                let hints = Fields::new();
                self.find_aged(Collection::Sessions, id.as_str(), &hints, freshness)
                    .await
            }
            Err(error) => Err(error),
        }
    }

    /// A cart that ended meanwhile has nothing to be extended.
    async fn extend_cart_of(
        &self,
        session: &ShopperSession,
        seen: Revision,
    ) -> Result<(), ShopError> {
        let Some(active) = self.guest_cart_of(session).await? else {
            return Ok(());
        };
        let lifetime = self.settings.guest_cart_lifetime_s;
        let until = self.now().end_of(lifetime);
        let until = until.min(session.times().expires_at);
        if active.cart.is_expired(until) {
            self.extend_active_cart(&active, until, seen).await?;
        }
        Ok(())
    }

    async fn abandon_cart_of(
        &self,
        session: &ShopperSession,
        seen: Revision,
    ) -> Result<Revision, ShopError> {
        let Some(active) = self.guest_cart_of(session).await? else {
            return Ok(Revision::ZERO);
        };
        let closing = self.close_cart(active.cart.id(), CartStatus::Abandoned, seen);
        match closing.await {
            Ok(closed) => Ok(closed.revision),
            Err(
                ShopError::CartClosed { .. }
                | ShopError::NotFound {
                    noun: Noun::Cart, ..
                },
            ) => Ok(Revision::ZERO),
            Err(error) => Err(error),
        }
    }

    /// The active cart of a guest; who is signed in has one as a user.
    async fn guest_cart_of(
        &self,
        session: &ShopperSession,
    ) -> Result<Option<CartRecord>, ShopError> {
        match session.details().user {
            Some(_) => Ok(None),
            None => {
                let owner = CartOwner::Guest(session.id().clone());
                self.find_active(&owner).await
            }
        }
    }
}

pub(crate) fn query_of_user(user: &UserId, page: PageWish) -> Query {
    Query {
        path: AccessPath::SessionsByUser,
        equals: vec![Value::text(user.as_str())],
        range: SortRange::default(),
        after: page.after,
        limit: page.limit,
    }
}

pub(crate) fn known(
    id: &ShopperSessionId,
    found: Option<SharedRecord>,
) -> Result<SessionRecord, ShopError> {
    match found.filter(|record| record.header.content.live().is_some()) {
        Some(record) => SessionRecord::read(&record),
        None => Err(ShopError::NotFound {
            noun: Noun::Session,
            id: id.to_string(),
        }),
    }
}

fn details(id: ShopperSessionId, wish: SessionWish) -> SessionDetails {
    SessionDetails {
        id,
        user: wish.user,
        ip_address: wish.ip_address,
        user_agent: wish.user_agent,
        device_type: wish.device_type,
        geo_zone: wish.geo_zone,
        attributes: wish.attributes,
    }
}

/// The guard's answer tells when the session was closed.
fn closed(id: &ShopperSessionId, header: &Header) -> ShopError {
    let fields = header.content.live();
    let closed_at = fields.and_then(|fields| fields.get(Field::ClosedAt)?.as_timestamp());
    match closed_at {
        Some(closed_at) => SessionError::Closed { closed_at }.into(),
        None => ShopError::Damaged {
            reason: format!("session {id} is closed and does not say since when"),
        },
    }
}

/// An answer that the contract does not allow for the change that was sent.
fn unforeseen(id: &ShopperSessionId, outcome: &Outcome) -> ShopError {
    ShopError::Damaged {
        reason: format!("a change of session {id} was answered by {outcome:?}"),
    }
}
