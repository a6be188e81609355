//! Changing fences and terms: a compare-and-swap over `collMod`.
//!
//! The rules stand in one document; the validators enforce them. `collMod`
//! itself is unconditional: a mover that paused between reading the rules and
//! sending its `collMod` would wake up and put older rules back, lowering a
//! fence (W20, W21). What MongoDB does check, in the same step, is that an index
//! named in the same `collMod` exists. So every `collMod` names a token, a
//! hidden index without entries, and whoever takes over an unfinished change
//! drops that token first: the sleeper's `collMod` then finds no index and
//! changes nothing. Tokens are named once and never again.
//!
//! ```text
//! settled ──swap──▶ pending ──collMod naming the token──▶ announced ──swap──▶ settled
//!                     │ still pending after PATIENCE_MAX: make a token, drop the old one, swap
//!                     └────▶ pending, by the one who takes over; its rules hold the other's too
//! ```
//!
//! A fence's journal entry is its announcement, a document of its own that is
//! written after every validator stands: it comes after all that was let through.

mod standing;

use std::time::Duration;

use engine_api::{EngineError, Fence, MoverTerm, Timestamp};
use futures::future::join_all;
use mongodb::Database;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use self::standing::{ANNOUNCEMENT_ID, Guard, RULES_ID, damaged, new_token};
use crate::failure::{Asked, DUPLICATE_KEY, Failure, INDEX_NOT_FOUND, answer};
use crate::schema::{Place, create_indexes, token_index, write_concern_of_command};
use crate::validator::{Edited, Rules, fence_to_bson};

pub(crate) use self::standing::announcement;

/// The collection of rules and announcements.
pub(crate) const GUARDS: &str = "caravan_guards";

/// How often a change of the rules begins again before it gives up.
const ATTEMPTS_MAX: usize = 32;

/// How long somebody else's change may stay unfinished before it is taken over.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
const PATIENCE_STEP: Duration = Duration::from_millis(20);

/// How long `collMod` may wait for open transactions on the collection.
const COLLMOD_MS_MAX: i64 = 1_000;

#[derive(Debug)]
pub(crate) struct Guards<'a> {
    pub database: &'a Database,
    pub places: &'a [Place],
    pub limit: Duration,
}

enum Step {
    Finished,
    /// Somebody else was faster, or took over.
    Overtaken,
}

impl Guards<'_> {
    /// Makes the rules document, and puts the standing rules into validators
    /// that lack them: of a new database, of a new collection, or because a
    /// crash left a change unfinished.
    pub async fn ensure(&self) -> Result<(), EngineError> {
        let first = Guard {
            number: 1,
            token: new_token(),
            pending: true,
            rules: Rules::default(),
            unannounced: Vec::new(),
        };
        let guards = self.collection();
        let own = match answer(
            self.limit,
            Asked::Write,
            guards.insert_one(first.to_document()?),
        )
        .await
        {
            Ok(_) => Some(first.number),
            Err(Failure::Refused {
                code: DUPLICATE_KEY,
                ..
            }) if self.stands().await? => return Ok(()),
            Err(Failure::Refused {
                code: DUPLICATE_KEY,
                ..
            }) => None,
            Err(failure) => return Err(failure.into()),
        };
        self.change(own, None, |_| Ok(Edited::Changed)).await
    }

    pub async fn rules(&self) -> Result<Rules, EngineError> {
        Ok(self.read().await?.rules)
    }

    pub async fn raise(
        &self,
        fence: Fence,
        term: &MoverTerm,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let announced = Some((fence.clone(), now));
        self.change(None, announced, |rules| {
            rules.hold_term(term)?;
            rules.raise(&fence)
        })
        .await
    }

    pub async fn claim(&self, term: &MoverTerm) -> Result<(), EngineError> {
        self.change(None, None, |rules| rules.claim(term)).await
    }

    /// Whether every validator has the standing rules: the last change was
    /// finished, and every collection took part in it.
    async fn stands(&self) -> Result<bool, EngineError> {
        let guard = self.read().await?;
        for place in self.places {
            let collection = self.database.collection::<Document>(&place.name);
            let names = answer(self.limit, Asked::Read, collection.list_index_names()).await?;
            if !names.contains(&guard.token) {
                return Ok(false);
            }
        }
        Ok(!guard.pending)
    }

    /// `own` is the number of a pending change that nobody else will finish.
    async fn change(
        &self,
        mut own: Option<i64>,
        fence: Option<(Fence, Timestamp)>,
        mut edit: impl FnMut(&mut Rules) -> Result<Edited, EngineError>,
    ) -> Result<(), EngineError> {
        for _ in 0..ATTEMPTS_MAX {
            let standing = self.settled_or_stuck(own).await?;
            let mut guard = standing.clone();
            let edited = edit(&mut guard.rules)?;
            if edited == Edited::Unchanged && !standing.pending {
                return Ok(());
            }
            if edited == Edited::Changed {
                guard.unannounced.extend(fence.clone());
            }
            if standing.pending {
                guard.token = self.replace_token(&standing.token).await?;
            }
            guard.pending = true;
            if !self.swap(&mut guard).await? {
                if standing.pending {
                    self.drop_token(&guard.token).await?;
                }
                continue;
            }
            own = Some(guard.number);
            // What was settled stands in every validator: one whose rules stay the same is
            // left alone. Who asks for the same rules again misses them somewhere.
            let is_settled = !standing.pending && standing.rules != guard.rules;
            let changed = match is_settled {
                true => self.changed(&standing.rules, &guard.rules)?,
                false => self.places.iter().collect(),
            };
            if let Step::Finished = self.finish(guard, &changed).await.map_err(begun)? {
                return Ok(());
            }
        }
        Err(EngineError::OutcomeUnknown {
            reason: "other movers keep changing fences and terms".to_owned(),
        })
    }

    /// Waits a while for another's change; one's own is not waited for.
    async fn settled_or_stuck(&self, own: Option<i64>) -> Result<Guard, EngineError> {
        let mut waited = Duration::ZERO;
        let mut seen = None;
        loop {
            let guard = self.read().await?;
            if seen != Some(guard.number) {
                (seen, waited) = (Some(guard.number), Duration::ZERO);
            }
            if !guard.pending || own == Some(guard.number) || waited >= PATIENCE_MAX {
                return Ok(guard);
            }
            tokio::time::sleep(PATIENCE_STEP).await;
            waited += PATIENCE_STEP;
        }
    }

    /// The places whose validator is another one under the new rules.
    fn changed(&self, old: &Rules, new: &Rules) -> Result<Vec<&Place>, EngineError> {
        let mut changed = Vec::new();
        for place in self.places {
            if old.validator(place.collection)? != new.validator(place.collection)? {
                changed.push(place);
            }
        }
        Ok(changed)
    }

    async fn finish(&self, mut guard: Guard, places: &[&Place]) -> Result<Step, EngineError> {
        let installing = places.iter().map(|place| self.install(place, &guard));
        for installed in join_all(installing).await {
            if let Step::Overtaken = installed? {
                return Ok(Step::Overtaken);
            }
        }
        for (fence, now) in &guard.unannounced {
            self.announce(fence, *now).await?;
        }
        guard.pending = false;
        guard.unannounced.clear();
        Ok(if self.swap(&mut guard).await? {
            Step::Finished
        } else {
            Step::Overtaken
        })
    }

    async fn install(&self, place: &Place, guard: &Guard) -> Result<Step, EngineError> {
        let command = doc! {
            "collMod": &place.name,
            "index": { "name": &guard.token, "hidden": true },
            "validator": guard.rules.validator(place.collection)?,
            "validationLevel": "strict",
            "validationAction": "error",
            "maxTimeMS": COLLMOD_MS_MAX,
            "writeConcern": write_concern_of_command(),
        };
        match answer(self.limit, Asked::Write, self.database.run_command(command)).await {
            Ok(_) => Ok(Step::Finished),
            Err(Failure::Refused {
                code: INDEX_NOT_FOUND,
                ..
            }) => Ok(Step::Overtaken),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn announce(&self, fence: &Fence, now: Timestamp) -> Result<(), EngineError> {
        let document = doc! {
            "_id": ANNOUNCEMENT_ID,
            // Without it, announcing the same fence again would change nothing and leave no entry.
            "stamp": ObjectId::new(),
            "fence": fence_to_bson(fence)?,
            "written_at": now.unix_micros(),
        };
        let guards = self.collection();
        let replacing = guards
            .replace_one(doc! { "_id": ANNOUNCEMENT_ID }, document)
            .upsert(true);
        answer(self.limit, Asked::Write, replacing).await?;
        Ok(())
    }

    async fn replace_token(&self, old: &str) -> Result<String, EngineError> {
        let token = new_token();
        for place in self.places {
            let command = create_indexes(&place.name, vec![token_index(&token)]);
            answer(self.limit, Asked::Write, self.database.run_command(command)).await?;
        }
        self.drop_token(old).await?;
        Ok(token)
    }

    async fn drop_token(&self, token: &str) -> Result<(), EngineError> {
        for place in self.places {
            let command = doc! {
                "dropIndexes": &place.name, "index": token, "writeConcern": write_concern_of_command(),
            };
            match answer(self.limit, Asked::Write, self.database.run_command(command)).await {
                Ok(_)
                | Err(Failure::Refused {
                    code: INDEX_NOT_FOUND,
                    ..
                }) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<Guard, EngineError> {
        let guards = self.collection();
        let finding = guards.find_one(doc! { "_id": RULES_ID });
        let found = answer(self.limit, Asked::Read, finding).await?;
        let document = found.ok_or_else(|| damaged("the rules of fences and terms are gone"))?;
        Guard::from_document(&document).map_err(damaged)
    }

    /// Answers whether the document still had the number that `guard` was read with.
    async fn swap(&self, guard: &mut Guard) -> Result<bool, EngineError> {
        let filter = doc! { "_id": RULES_ID, "number": guard.number };
        guard.number += 1;
        let guards = self.collection();
        let replacing = guards.replace_one(filter, guard.to_document()?);
        Ok(answer(self.limit, Asked::Write, replacing)
            .await?
            .matched_count
            == 1)
    }

    fn collection(&self) -> mongodb::Collection<Document> {
        self.database.collection(GUARDS)
    }
}

/// Once a change stands in the rules document, whoever comes next finishes it.
fn begun(error: EngineError) -> EngineError {
    EngineError::OutcomeUnknown {
        reason: format!("the change of fences has begun, then {error}"),
    }
}
