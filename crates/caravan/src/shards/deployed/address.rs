//! Addresses of shards on servers, as settings have them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, anyhow, bail};
use engine_cassandra::Credentials;
use layout::EngineKind;
use layout::consistency::Replication;

const CASSANDRA_SCHEME: &str = "cassandra://";
const CASSANDRA_PORT: u16 = 9042;
/// Cassandra's own limit.
const KEYSPACE_BYTES_MAX: usize = 48;

/// Where a shard keeps its records, to tell whether two are the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    hosts: BTreeSet<String>,
    keyspace: Option<String>,
}

impl Spot {
    pub fn of(kind: EngineKind, address: &str) -> Spot {
        let (_, rest) = address.split_once("://").unwrap_or(("", address));
        let (_, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, options) = rest.split_once('/').unwrap_or((rest, ""));
        let keyspace = match kind {
            EngineKind::Cassandra => options
                .trim_start_matches('?')
                .split('&')
                .find_map(|option| option.strip_prefix("keyspace="))
                .map(str::to_owned),
            EngineKind::Mongo | EngineKind::Embedded | EngineKind::Memory => None,
        };
        Spot {
            hosts: hosts
                .split(',')
                .map(|host| host.trim().to_owned())
                .collect(),
            keyspace,
        }
    }

    pub fn meets(&self, other: &Spot) -> bool {
        self.keyspace == other.keyspace && !self.hosts.is_disjoint(&other.hosts)
    }
}

/// `[cassandra://[user:password@]]host:port,host:port[/?replication=DATACENTRE:COPIES,…&keyspace=NAME]`
#[derive(Clone)]
pub struct CassandraAddress {
    pub contact_points: Vec<SocketAddr>,
    pub credentials: Option<Credentials>,
    /// Copies in each datacentre instead of the layout's: for clusters that have others.
    pub replication: Option<Replication>,
    /// Instead of the layout's: for two shards on one cluster.
    pub keyspace: Option<String>,
}

impl CassandraAddress {
    pub fn parse(text: &str) -> Result<CassandraAddress> {
        let rest = text.strip_prefix(CASSANDRA_SCHEME).unwrap_or(text);
        // First, whatever it has in it: what is left may be quoted in an error.
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (hosts, options) = rest.split_once("/?").unwrap_or((rest, ""));
        let credentials = credentials
            .map(|both| {
                let (user, password) = both
                    .split_once(':')
                    .context("write user:password before the @")?;
                anyhow::Ok(Credentials {
                    user: user.to_owned(),
                    password: password.to_owned(),
                })
            })
            .transpose()?;
        let mut contact_points = Vec::new();
        for host in hosts.split(',').map(str::trim) {
            let port = if host.contains(':') { "" } else { ":9042" };
            let found = format!("{host}{port}").to_socket_addrs().map_err(|error| {
                anyhow!("{host:?} is no address of a server ({error}): write host:{CASSANDRA_PORT}")
            })?;
            contact_points.extend(found);
        }
        let mut address = CassandraAddress {
            contact_points,
            credentials,
            replication: None,
            keyspace: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("replication", copies)) => address.replication = Some(replication(copies)?),
                Some(("keyspace", name)) if is_keyspace(name) => {
                    address.keyspace = Some(name.to_owned());
                }
                _ => bail!(
                    "{option:?} is not understood: only replication=DATACENTRE:COPIES and keyspace=NAME are"
                ),
            }
        }
        Ok(address)
    }
}

fn is_keyspace(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=KEYSPACE_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

fn replication(text: &str) -> Result<Replication> {
    let copies = |pair: &str| {
        let (datacentre, copies) = pair.split_once(':')?;
        Some((datacentre.to_owned(), copies.parse().ok()?))
    };
    let all: Option<Replication> = text.split(',').map(copies).collect();
    all.with_context(|| format!("{text:?} is no replication: write DATACENTRE:COPIES,…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_cassandra_has_hosts_and_may_have_a_user_and_replication() {
        let address = CassandraAddress::parse("127.0.0.1,127.0.0.2:9043").unwrap();
        let points: Vec<String> = address
            .contact_points
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(points, ["127.0.0.1:9042", "127.0.0.2:9043"]);
        assert!(address.credentials.is_none() && address.replication.is_none());
        let address =
            CassandraAddress::parse("cassandra://me:p@ss@127.0.0.1:1/?replication=near:1,far:2")
                .unwrap();
        let credentials = address.credentials.unwrap();
        assert_eq!((&*credentials.user, &*credentials.password), ("me", "p@ss"));
        let copies = [("near".to_owned(), 1), ("far".to_owned(), 2)];
        assert_eq!(address.replication, Some(Replication::from(copies)));
        let address =
            CassandraAddress::parse("127.0.0.1/?replication=near:1&keyspace=two").unwrap();
        assert_eq!(address.keyspace.as_deref(), Some("two"));
        assert!(address.replication.is_some());
        let address = CassandraAddress::parse("me:p/?ss@127.0.0.1:1").unwrap();
        assert_eq!(address.credentials.unwrap().password, "p/?ss");
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, said) in [
            ("127.0.0.1:port", "write host:9042"),
            ("me@127.0.0.1", "user:password"),
            ("127.0.0.1/?replication=near", "DATACENTRE:COPIES"),
            ("127.0.0.1/?copies=1", "only replication="),
            ("127.0.0.1/?keyspace=", "keyspace=NAME"),
            ("127.0.0.1/?keyspace=a;b", "keyspace=NAME"),
        ] {
            let error = CassandraAddress::parse(text).err().unwrap().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn two_addresses_are_of_one_spot_when_a_host_and_the_keyspace_are_the_same() {
        let check = |kind: EngineKind, one: &str, other: &str, expected: bool| {
            let (one, other) = (Spot::of(kind, one), Spot::of(kind, other));
            assert_eq!(one.meets(&other), expected, "{one:?} and {other:?}");
        };
        let mongo = EngineKind::Mongo;
        check(
            mongo,
            "mongodb://a:1,b:2/?replicaSet=x",
            "mongodb://me:pw@b:2/",
            true,
        );
        check(
            mongo,
            "mongodb://a:1/?replicaSet=x",
            "mongodb://a:2/?replicaSet=x",
            false,
        );
        let cassandra = EngineKind::Cassandra;
        check(
            cassandra,
            "a:1,b:1",
            "cassandra://b:1/?replication=near:1",
            true,
        );
        check(cassandra, "a:1", "a:1/?keyspace=two", false);
    }
}
