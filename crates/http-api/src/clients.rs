//! How often one client may ask: a rate by peer address, in bounded memory.
//!
//! Each address has, by its hash, one cell with the time at which its bucket would be
//! full again (the generic cell rate algorithm). Two addresses may share a cell and
//! then a rate: with 65 536 cells that is rarer than a proxy before many clients, and
//! no flood of addresses can make the table grow.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::HttpLimits;

const CELLS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Clients {
    seed: u64,
    /// Between two requests at the full rate.
    step_ns: u64,
    /// How far ahead of now a cell may be.
    tolerance_ns: u64,
    cells: Vec<AtomicU64>,
}

impl Clients {
    pub(crate) fn new(limits: &HttpLimits, seed: u64) -> Clients {
        let step_ns = 1_000_000_000 / u64::from(limits.client_requests_per_s.max(1));
        Clients {
            seed,
            step_ns,
            tolerance_ns: step_ns * u64::from(limits.client_burst),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How long the client must wait, if it must.
    pub(crate) fn admit(&self, peer: IpAddr, elapsed: Duration) -> Result<(), Duration> {
        let now = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let cell = &self.cells[self.cell_of(peer)];
        let mut wait = 0;
        let next = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let next = full_at.max(now).saturating_add(self.step_ns);
            wait = next.saturating_sub(now).saturating_sub(self.tolerance_ns);
            (wait == 0).then_some(next)
        });
        next.map(drop).map_err(|_| Duration::from_nanos(wait))
    }

    fn cell_of(&self, peer: IpAddr) -> usize {
        let hash = match peer.to_canonical() {
            IpAddr::V4(address) => xxh3_64_with_seed(&address.octets(), self.seed),
            // A host gets a whole /64 and could change its address with every request.
            IpAddr::V6(address) => xxh3_64_with_seed(&address.octets()[..8], self.seed),
        };
        usize::try_from(hash % CELLS as u64).expect("a cell's number is small")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_burst_then_keeps_its_rate_and_others_are_not_harmed() {
        let limits = HttpLimits {
            client_requests_per_s: 10,
            client_burst: 3,
            ..HttpLimits::default()
        };
        let clients = Clients::new(&limits, 7);
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        assert_ne!(clients.cell_of(one), clients.cell_of(other));
        let at = Duration::from_millis;
        for _ in 0..3 {
            assert_eq!(clients.admit(one, at(1000)), Ok(()));
        }
        assert_eq!(clients.admit(one, at(1000)), Err(at(100)));
        assert_eq!(clients.admit(one, at(1099)), Err(at(1)));
        assert_eq!(clients.admit(other, at(1099)), Ok(()));
        assert_eq!(clients.admit(one, at(1100)), Ok(()));
        assert!(clients.admit(one, at(1100)).is_err());
    }

    #[test]
    fn addresses_of_one_host_share_a_rate() {
        let clients = Clients::new(&HttpLimits::default(), 7);
        let cell = |text: &str| clients.cell_of(text.parse().unwrap());
        assert_eq!(cell("2001:db8::1"), cell("2001:db8::2"));
        assert_eq!(cell("::ffff:127.0.0.1"), cell("127.0.0.1"));
        assert_ne!(cell("2001:db8::1"), cell("2001:db8:0:1::1"));
    }
}
