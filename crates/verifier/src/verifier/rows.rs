//! Derived rows of the target that do not follow their records (E25): a listing there would miss something, or show
//! what is not.
//!
//! A row may only be on its way, of a record that others are writing: what was found is looked at again, like a record
//! that lags, before it counts.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use engine_api::{Patience, RecordId, Stray, StrayEnd, StraySearch};

use super::{Verifier, since};
use crate::error::VerifyError;
use crate::progress::{Place, Side};
use crate::proof::Unproven;

#[derive(Debug)]
pub(super) struct Rows {
    pub place: Place,
    /// Whether all were looked at once.
    pub all_met: bool,
    suspects: BTreeMap<Name, Suspect>,
    looked_at: Option<Name>,
}

/// Table, record and row.
type Name = (String, RecordId, Vec<u8>);

#[derive(Debug)]
struct Suspect {
    stray: Stray,
    /// By `World::elapsed`.
    since: Duration,
    is_confirmed: bool,
}

impl Rows {
    pub fn at(place: Place) -> Rows {
        Rows {
            all_met: place == Place::End,
            place,
            suspects: BTreeMap::new(),
            looked_at: None,
        }
    }

    /// All are looked at once more; what was found stays until it is put right.
    pub fn begin(&mut self) {
        self.place = Place::Start;
    }

    /// What to save: whoever goes on has to find the strays itself.
    pub fn saved(&self) -> Place {
        match self.suspects.is_empty() {
            true => self.place.clone(),
            false => Place::Start,
        }
    }

    pub fn nothing_is_open(&self) -> bool {
        self.all_met && self.suspects.values().all(|it| it.is_confirmed)
    }
}

impl Verifier {
    /// Derived rows of the target that have not followed their records for longer than a change may take.
    pub fn strays(&self) -> Vec<Stray> {
        let suspects = self.rows.suspects.values();
        let named = suspects.filter(|suspect| suspect.is_confirmed);
        let strays = named.map(|suspect| suspect.stray.clone());
        strays.take(self.limits.named_max).collect()
    }

    /// One page of them, as long as there is room for what it may bring.
    pub(super) async fn search_rows(&mut self) -> Result<(), VerifyError> {
        let Some(after) = self.rows.place.next_page() else {
            return Ok(());
        };
        if self.rows.suspects.len() >= self.limits.suspects_max {
            return Ok(());
        }
        let search = StraySearch {
            collection: self.pair.collection,
            scope: self.pair.scope.clone(),
            after,
            limit: self.limits.scan_records_max,
            patience: Patience::Without,
            now: self.world.now(),
        };
        let page = self.pair.target.find_strays(&search).await;
        let page = page.map_err(VerifyError::of(Side::Target))?;
        let since = self.world.elapsed();
        for stray in page.strays {
            let name = name(&stray);
            self.rows.suspects.entry(name).or_insert(Suspect {
                stray,
                since,
                is_confirmed: false,
            });
        }
        self.rows.place = page.next.into();
        self.rows.all_met |= self.rows.place == Place::End;
        Ok(())
    }

    /// A bounded number of those that were found, each in its turn.
    pub(super) async fn look_at_rows(&mut self) -> Result<(), VerifyError> {
        let after = match self.rows.looked_at.take() {
            Some(name) => Bound::Excluded(name),
            None => Bound::Unbounded,
        };
        let suspects = &self.rows.suspects;
        let wanted = self.limits.looks_at_once_max.min(suspects.len());
        let later = suspects.range((after, Bound::Unbounded));
        let in_turn = later.chain(suspects.range(..)).take(wanted);
        let names: Vec<Name> = in_turn.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.look_at_row(name).await?;
        }
        self.rows.looked_at = names.last().cloned();
        Ok(())
    }

    /// Everything that was ever found, for the proof.
    pub(super) async fn strays_left(&mut self) -> Result<Option<Unproven>, VerifyError> {
        let names: Vec<Name> = self.rows.suspects.keys().cloned().collect();
        for name in &names {
            self.look_at_row(name).await?;
        }
        let count = self.rows.suspects.len();
        let strays = self.rows.suspects.values().map(|it| it.stray.clone());
        let named: Vec<Stray> = strays.take(self.limits.named_max).collect();
        Ok((count > 0).then_some(Unproven::Strays { count, named }))
    }

    /// Puts a derived row of the target right, by its record there.
    pub async fn mend(&mut self, stray: &Stray) -> Result<StrayEnd, VerifyError> {
        let mended = self.pair.target.mend_stray(stray, self.world.now()).await;
        let end = mended.map_err(VerifyError::of(Side::Target))?;
        self.look_at_row(&name(stray)).await?;
        Ok(end)
    }

    async fn look_at_row(&mut self, name: &Name) -> Result<(), VerifyError> {
        let Some(suspect) = self.rows.suspects.get(name) else {
            return Ok(());
        };
        let standing = self.pair.target.is_stray(&suspect.stray, self.world.now());
        let stands = standing.await.map_err(VerifyError::of(Side::Target))?;
        if !stands {
            self.rows.suspects.remove(name);
            return Ok(());
        }
        let (now, lag_ms_max) = (self.world.elapsed(), self.limits.lag_ms_max);
        if let Some(suspect) = self.rows.suspects.get_mut(name) {
            suspect.is_confirmed |= since(suspect.since, now) >= Duration::from_millis(lag_ms_max);
        }
        Ok(())
    }
}

fn name(stray: &Stray) -> Name {
    (stray.table.clone(), stray.id.clone(), stray.row.clone())
}
