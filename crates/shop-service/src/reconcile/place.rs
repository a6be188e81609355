//! Where a reconciler stands: its round, and how far it is in it. As text, so that one
//! that was stopped can be sent on from there.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use engine_api::ScanPosition;
use layout::Collection;
use router::{ShardName, SurveyPlace};

/// What is walked through, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Products,
    Orders,
    Shelves,
    Carts,
    Rows(Collection),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub round: Round,
    /// `None` at the beginning of the round.
    shard: Option<ShardName>,
    after: Option<ScanPosition>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no place of a reconciler: give one as it was printed, or a round: {rounds}")]
pub struct PlaceError {
    text: String,
    rounds: String,
}

impl Round {
    const ALL: [Round; 8] = [
        Round::Products,
        Round::Orders,
        Round::Shelves,
        Round::Carts,
        Round::Rows(Collection::Carts),
        Round::Rows(Collection::Orders),
        Round::Rows(Collection::Products),
        Round::Rows(Collection::Sessions),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Round::Products => "products",
            Round::Orders => "orders",
            Round::Shelves => "shelves",
            Round::Carts => "carts",
            Round::Rows(Collection::Carts) => "rows-of-carts",
            Round::Rows(Collection::Orders) => "rows-of-orders",
            Round::Rows(Collection::Products) => "rows-of-products",
            Round::Rows(Collection::Sessions) => "rows-of-sessions",
        }
    }

    pub(super) fn next(self) -> Option<Round> {
        let at = Round::ALL.iter().position(|round| *round == self)?;
        Round::ALL.get(at + 1).copied()
    }

    pub(super) fn at(self, place: SurveyPlace) -> Place {
        Place {
            round: self,
            shard: Some(place.shard),
            after: place.after,
        }
    }
}

impl Place {
    pub fn first() -> Place {
        Place::beginning_of(Round::Products)
    }

    pub fn beginning_of(round: Round) -> Place {
        Place {
            round,
            shard: None,
            after: None,
        }
    }

    pub(super) fn survey(&self) -> Option<SurveyPlace> {
        self.shard.clone().map(|shard| SurveyPlace {
            shard,
            after: self.after.clone(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.round.name())?;
        if let Some(shard) = &self.shard {
            write!(f, "@{shard}")?;
        }
        if let Some(after) = &self.after {
            f.write_char(':')?;
            for byte in &after.0 {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        parse(text).ok_or_else(|| PlaceError {
            text: text.to_owned(),
            rounds: Round::ALL.map(Round::name).join(", "),
        })
    }
}

fn parse(text: &str) -> Option<Place> {
    let (text, after) = match text.split_once(':') {
        Some((text, after)) => (text, Some(ScanPosition(bytes(after)?))),
        None => (text, None),
    };
    let (round, shard) = match text.split_once('@') {
        Some((round, shard)) => (round, Some(ShardName::new(shard).ok()?)),
        None => (text, None),
    };
    let round = Round::ALL.into_iter().find(|known| known.name() == round)?;
    (after.is_none() || shard.is_some()).then_some(Place {
        round,
        shard,
        after,
    })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let [high, low] = pair else { return None };
            let digit = |byte: &u8| char::from(*byte).to_digit(16);
            u8::try_from(digit(high)? * 16 + digit(low)?).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_printed() {
        for text in ["products", "carts@shard-1", "rows-of-orders@orders:00ff7a"] {
            assert_eq!(
                text.parse::<Place>().map(|place| place.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "prices",
            "carts:00",
            "carts@shard-1:0",
            "carts@shard-1:0g",
            "carts@",
        ] {
            let refusal = text.parse::<Place>().unwrap_err().to_string();
            assert!(refusal.contains("rows-of-carts"), "{refusal}");
        }
    }

    #[test]
    fn every_round_follows_another_and_the_last_none() {
        let mut round = Round::Products;
        let mut rounds = vec![round];
        while let Some(next) = round.next() {
            rounds.push(next);
            round = next;
        }
        assert_eq!(rounds, Round::ALL);
    }
}
