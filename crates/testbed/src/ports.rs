//! Free ports and addresses on loopback.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use crate::Unavailable;
use crate::lock::FileLock;

/// Below the range that the kernel gives to outgoing connections. A server that
/// is killed and restarted finds its port free again, and a client that dials a
/// dead member cannot be handed that very port and connect to itself.
const PORT_FIRST: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

pub(crate) const CQL_PORT: u16 = 9042;
pub(crate) const STORAGE_PORT: u16 = 7000;
pub(crate) const SSL_STORAGE_PORT: u16 = 7001;

/// Third numbers of 127.0.N.1–3. All Cassandra nodes of a cluster must share
/// one CQL port, so clusters differ in their addresses.
const SUBNET_COUNT: u8 = 250;

/// Where the search for addresses begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FirstChoice {
    /// 127.0.0.1–3, which a person expects.
    Usual,
    /// Anywhere, so that processes that look at once rarely meet.
    Random,
}

/// Free ports of 127.0.0.1, all different.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, Unavailable> {
    let start = random() % u64::from(PORT_COUNT);
    let held: Vec<(u16, TcpListener)> = (0..PORT_COUNT)
        .map(|step| PORT_FIRST + ((start + u64::from(step)) % u64::from(PORT_COUNT)) as u16)
        .filter_map(|port| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .ok()
                .map(|listener| (port, listener))
        })
        .take(count)
        .collect();
    if held.len() < count {
        return Err(Unavailable::NothingFree { what: "port" });
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

/// Addresses for one Cassandra cluster. Nobody else of this cache folder gets
/// them while the claim lives, even when every node of it is killed.
#[derive(Debug)]
pub struct AddressClaim {
    pub(crate) addresses: Vec<Ipv4Addr>,
    _lock: FileLock,
}

pub(crate) fn claim_addresses(
    root: &Path,
    count: usize,
    first: FirstChoice,
) -> Result<AddressClaim, Unavailable> {
    let start = match first {
        FirstChoice::Usual => 0,
        FirstChoice::Random => random(),
    } % u64::from(SUBNET_COUNT);
    for step in 0..SUBNET_COUNT {
        let subnet = ((start + u64::from(step)) % u64::from(SUBNET_COUNT)) as u8;
        let Some(lock) =
            FileLock::try_acquire(&root.join(format!("addresses/127.0.{subnet}.lock")))?
        else {
            continue;
        };
        let addresses: Vec<Ipv4Addr> = (1..=count)
            .map(|last| Ipv4Addr::new(127, 0, subnet, last as u8))
            .collect();
        if addresses.iter().all(|address| is_free(*address)) {
            return Ok(AddressClaim {
                addresses,
                _lock: lock,
            });
        }
    }
    Err(Unavailable::NothingFree {
        what: "address with ports 7000, 7001 and 9042",
    })
}

fn is_free(address: Ipv4Addr) -> bool {
    [CQL_PORT, STORAGE_PORT, SSL_STORAGE_PORT]
        .into_iter()
        .all(|port| TcpListener::bind(SocketAddr::from((address, port))).is_ok())
}

fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports = free_ports(8).unwrap();
        let held: Vec<_> = ports
            .iter()
            .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap())
            .collect();
        assert_eq!(held.len(), 8);
    }

    #[test]
    fn two_clusters_never_get_the_same_address() {
        let root = tempfile::tempdir().unwrap();
        let claims: Vec<_> = (0..20)
            .map(|_| claim_addresses(root.path(), 3, FirstChoice::Random).unwrap())
            .collect();
        let distinct: std::collections::HashSet<_> =
            claims.iter().flat_map(|claim| &claim.addresses).collect();
        assert_eq!(distinct.len(), 60);
    }
}
