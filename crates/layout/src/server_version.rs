//! Versions of database servers: some options exist from one on, or up to one.

use std::fmt;
use std::str::FromStr;

use crate::engine::EngineKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    pub major: u16,
    pub minor: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a version: write two numbers, such as \"5.0\"")]
pub struct NotAVersion {
    text: String,
}

impl ServerVersion {
    pub const fn new(major: u16, minor: u16) -> ServerVersion {
        ServerVersion { major, minor }
    }

    /// What a layout is checked against when it does not say.
    pub const fn default_of(kind: EngineKind) -> Option<ServerVersion> {
        match kind {
            EngineKind::Cassandra => Some(ServerVersion::new(5, 0)),
            EngineKind::Mongo => Some(ServerVersion::new(6, 0)),
            EngineKind::Memory | EngineKind::Embedded => None,
        }
    }
}

/// Reads `5.0` and `5.0.8`: options change with the first two numbers only.
impl FromStr for ServerVersion {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<ServerVersion, NotAVersion> {
        let numbers: Result<Vec<u16>, _> = text.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([major, minor] | [major, minor, _]) => Ok(ServerVersion::new(*major, *minor)),
            _ => Err(NotAVersion {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_by_their_first_two_numbers() {
        let version = |text: &str| text.parse::<ServerVersion>();
        assert_eq!(version("5.0.8"), Ok(ServerVersion::new(5, 0)));
        assert!(version("4.1").unwrap() < version("5.0").unwrap());
        assert!(version("10.0").unwrap() > version("9.9").unwrap());
        for text in ["", "5", "5.x", "5.0.1.2", "-1.0"] {
            assert!(version(text).is_err(), "{text}");
        }
    }
}
