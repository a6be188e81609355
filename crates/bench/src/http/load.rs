//! Drives callers over kept-alive connections: closed loop, as fast as answers come, or open loop, on schedule.
//!
//! In the open loop a request's time runs from the moment it was due, whether or not a connection was free to
//! send it then: a server that stalls pays for everyone who would have come meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use judge::http::{Connection, Response};
use tokio::sync::Semaphore;

/// As many as the machine has cores for: the server needs them too, but at other moments.
const THREADS: usize = 2;
const LATENCY_MICROS_MAX: u64 = 60_000_000;
/// What is due when the schedule ends may still be answered for this long.
const GRACE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_micros(100);
/// A server that answers none of this many requests in a row is down.
const FAILURES_IN_A_ROW_MAX: u32 = 20;

/// What one connection says: a request, and whether the answer was the expected one.
pub trait Caller: Send {
    /// Appends the next request; false when there is none left.
    fn next(&mut self, request: &mut Vec<u8>) -> bool;
    /// The error names what was asked and what came, without ids, so that equal ones add up.
    fn answered(&mut self, response: &Response<'_>) -> Result<(), String>;
    /// The same, for who counts by how long it took since the request was due.
    fn answered_after(&mut self, response: &Response<'_>, _: Duration) -> Result<(), String> {
        self.answered(response)
    }
}

#[derive(Debug)]
pub struct Tally {
    pub answers: u64,
    /// What was asked and came instead, and how often.
    pub unexpected: BTreeMap<String, u64>,
    pub latency: Histogram<u64>,
    pub length: Duration,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            answers: 0,
            unexpected: BTreeMap::new(),
            latency: Histogram::new_with_max(LATENCY_MICROS_MAX, 3)
                .expect("the bounds are constants that fit"),
            length: Duration::ZERO,
        }
    }

    pub fn count(&mut self, waited: Duration, judged: Result<(), String>) {
        self.answers += 1;
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.latency.saturating_record(micros);
        if let Err(unexpected) = judged {
            *self.unexpected.entry(unexpected).or_default() += 1;
        }
    }

    pub fn add(&mut self, other: &Tally) {
        self.answers += other.answers;
        for (what, count) in &other.unexpected {
            *self.unexpected.entry(what.clone()).or_default() += count;
        }
        self.latency += &other.latency;
        self.length = self.length.max(other.length);
    }

    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.length.as_secs_f64()
    }

    /// In milliseconds.
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub fn unexpected_count(&self) -> u64 {
        self.unexpected.values().sum()
    }
}

/// Every caller on its connection, as fast as answers come, for the length given or until it has no more to say.
pub fn closed<C: Caller>(
    address: SocketAddr,
    callers: Vec<C>,
    length: Option<Duration>,
) -> anyhow::Result<(Tally, Vec<C>)> {
    let per_thread = callers.len().div_ceil(THREADS).max(1);
    let mut callers = callers.into_iter();
    let mut shares = Vec::new();
    loop {
        let share: Vec<C> = callers.by_ref().take(per_thread).collect();
        if share.is_empty() {
            break;
        }
        shares.push(share);
    }
    let end = length.map(|length| Instant::now() + length);
    let ran: anyhow::Result<Vec<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn(move || run_share(address, share, end)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|ran| ran.unwrap_or_else(|_| bail!("a thread of the load has panicked")))
            .collect()
    });
    let (mut tally, mut done) = (Tally::new(), Vec::new());
    for (of_share, callers) in ran? {
        tally.add(&of_share);
        done.extend(callers);
    }
    Ok((tally, done))
}

fn run_share<C: Caller>(
    address: SocketAddr,
    callers: Vec<C>,
    end: Option<Instant>,
) -> anyhow::Result<(Tally, Vec<C>)> {
    runtime()?.block_on(async move {
        let tally = RefCell::new(Tally::new());
        let lines = open_lines(address, callers).await?;
        let begun = Instant::now();
        let tasks = lines.into_iter().map(|mut line| {
            let tally = &tally;
            async move {
                while end.is_none_or(|end| Instant::now() < end) && line.call(tally, None).await? {}
                anyhow::Ok(line.caller)
            }
        });
        let callers = try_join_all(tasks).await?;
        let mut tally = tally.into_inner();
        tally.length = begun.elapsed();
        Ok((tally, callers))
    })
}

#[derive(Debug)]
pub struct OpenTally {
    pub answered: Tally,
    /// Due, but not answered when the grace was over; they count as having waited that long.
    pub unanswered: u64,
}

/// `rate` requests a second on schedule, by whichever connection is free.
pub fn open<C: Caller>(
    address: SocketAddr,
    callers: Vec<C>,
    rate: u64,
    length: Duration,
) -> anyhow::Result<OpenTally> {
    let never = Arc::new(AtomicBool::new(false));
    open_until(address, callers, rate, length, &never)
}

/// The same until somebody says stop, or the time is over.
pub fn open_until<C: Caller>(
    address: SocketAddr,
    callers: Vec<C>,
    rate: u64,
    length: Duration,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<OpenTally> {
    ensure!(rate > 0, "a rate of 0 sends nothing");
    let due_most = (length.as_secs_f64() * rate as f64) as u64;
    let due_total = Arc::new(AtomicU64::new(due_most));
    let mut tally = runtime()?.block_on(async {
        let mut lines = open_lines(address, callers).await?;
        // Uncounted: a connection that the server has not yet taken up would make the first request late.
        let uncounted = RefCell::new(Tally::new());
        try_join_all(lines.iter_mut().map(|line| line.call(&uncounted, None))).await?;
        let (tally, taken) = (RefCell::new(Tally::new()), Cell::new(0));
        let permits = Arc::new(Semaphore::new(0));
        let begin = Instant::now();
        let ticker = {
            let (permits, due_total, stop) = (permits.clone(), due_total.clone(), stop.clone());
            std::thread::spawn(move || tick(begin, rate, &due_total, &permits, &stop))
        };
        let tasks = lines.into_iter().map(|mut line| {
            let (tally, taken, permits) = (&tally, &taken, &permits);
            let due_total = &due_total;
            async move {
                loop {
                    permits.acquire().await?.forget();
                    let ticket: u64 = taken.replace(taken.get() + 1);
                    if ticket >= due_total.load(Ordering::Relaxed) {
                        return anyhow::Ok(());
                    }
                    let due = begin + Duration::from_secs_f64(ticket as f64 / rate as f64);
                    let called = line.call(tally, Some(due)).await?;
                    ensure!(called, "a caller has nothing more to say");
                }
            }
        });
        // Out of time is a measurement, not a failure.
        if let Ok(done) = tokio::time::timeout(length + GRACE, try_join_all(tasks)).await {
            done?;
        }
        let joined = ticker.join();
        ensure!(joined.is_ok(), "the thread of the schedule has panicked");
        anyhow::Ok(tally.into_inner())
    })?;
    let due_total = due_total.load(Ordering::Relaxed);
    let unanswered = due_total.saturating_sub(tally.answers);
    let waited = u64::try_from(GRACE.as_micros()).unwrap_or(u64::MAX);
    tally.latency.saturating_record_n(waited, unanswered);
    tally.length = Duration::from_secs_f64(due_total as f64 / rate as f64);
    Ok(OpenTally {
        answered: tally,
        unanswered,
    })
}

async fn open_lines<C: Caller>(
    address: SocketAddr,
    callers: Vec<C>,
) -> anyhow::Result<Vec<Line<C>>> {
    try_join_all(
        callers
            .into_iter()
            .map(|caller| Line::open(address, caller)),
    )
    .await
}

/// A thread of its own: the timers of the runtime are a whole millisecond coarse.
fn tick(begin: Instant, rate: u64, due_total: &AtomicU64, permits: &Semaphore, stop: &AtomicBool) {
    let (mut released, most) = (0, due_total.load(Ordering::Relaxed));
    while released < most && !stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * rate as f64) as u64 + 1;
        let due = due.min(most);
        permits.add_permits((due - released) as usize);
        released = due;
        std::thread::sleep(TICK);
    }
    due_total.store(released, Ordering::Relaxed);
    // Wakes everyone once more, to find that nothing is left.
    permits.add_permits(Semaphore::MAX_PERMITS / 2);
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// A caller and its connection.
struct Line<C> {
    address: SocketAddr,
    connection: Connection,
    caller: C,
    request: Vec<u8>,
    failures_in_a_row: u32,
}

impl<C: Caller> Line<C> {
    async fn open(address: SocketAddr, caller: C) -> anyhow::Result<Line<C>> {
        let connection = Connection::open(address)
            .await
            .with_context(|| format!("nobody listens on {address}"))?;
        Ok(Line {
            address,
            connection,
            caller,
            request: Vec::with_capacity(2048),
            failures_in_a_row: 0,
        })
    }

    /// One request and its answer; false when the caller has no more.
    async fn call(&mut self, tally: &RefCell<Tally>, due: Option<Instant>) -> anyhow::Result<bool> {
        self.request.clear();
        if !self.caller.next(&mut self.request) {
            return Ok(false);
        }
        let begun = due.unwrap_or_else(Instant::now);
        let failed = match self.connection.exchange(&self.request).await {
            Ok(response) => {
                let waited = begun.elapsed();
                let judged = self.caller.answered_after(&response, waited);
                tally.borrow_mut().count(waited, judged);
                self.failures_in_a_row = 0;
                return Ok(true);
            }
            Err(error) => error,
        };
        let lost = Err(format!("no answer: {failed}"));
        tally.borrow_mut().count(begun.elapsed(), lost);
        self.failures_in_a_row += 1;
        if self.failures_in_a_row > FAILURES_IN_A_ROW_MAX {
            bail!("{} answers no more: {failed}", self.address);
        }
        self.connection = Connection::open(self.address)
            .await
            .with_context(|| format!("{} takes no more connections", self.address))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const STALL: Duration = Duration::from_millis(300);

    struct Get;

    impl Caller for Get {
        fn next(&mut self, request: &mut Vec<u8>) -> bool {
            request.extend_from_slice(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
            true
        }

        fn answered(&mut self, response: &Response<'_>) -> Result<(), String> {
            match response.status {
                200 => Ok(()),
                status => Err(format!("GET: {status}, not 200")),
            }
        }
    }

    /// Serves one connection; stalls once, and answers one request with 500.
    fn stalling_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 1024];
            let mut requests = 0;
            while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
                requests += 1;
                let status = if requests == 5 { 500 } else { 200 };
                if requests == 20 {
                    std::thread::sleep(STALL);
                }
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn on_schedule_a_stall_is_paid_by_everyone_who_was_due_in_it() {
        let length = Duration::from_secs(1);
        let open = open(stalling_server(), vec![Get], 500, length).unwrap();
        assert_eq!((open.answered.answers, open.unanswered), (500, 0));
        // 150 of the 500 were due while the server stood still.
        assert!(
            open.answered.quantile(0.9) > 100.0,
            "{}",
            open.answered.quantile(0.9)
        );

        let (closed, _) = closed(stalling_server(), vec![Get], Some(length)).unwrap();
        assert!(closed.quantile(0.9) < 50.0, "{}", closed.quantile(0.9));
    }

    #[test]
    fn an_answer_of_another_kind_is_counted_by_name() {
        let length = Some(Duration::from_millis(100));
        let (tally, _) = closed(stalling_server(), vec![Get], length).unwrap();
        assert_eq!(
            tally.unexpected,
            BTreeMap::from([("GET: 500, not 200".to_owned(), 1)])
        );
    }
}
