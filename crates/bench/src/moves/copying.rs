//! Backfill and verification, engine by engine: ours and the bare loader in turn, each into a target that is new.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use engine_api::layout::Layout;
use engine_api::{Authority, Change, ControlStore, Engine, MoverTerm, WriteContext};
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace, Recording};
use engine_embedded::EmbeddedEngine;
use engine_mongo::{MongoConfig, MongoEngine};
use futures::TryStreamExt;
use mongodb::bson::Document;
use testbed::{CassandraCluster, Members, MongoSet, Nodes};

use super::loading::{Course, Rate};
use super::{Size, bare};
use crate::engine;
use crate::engines::{CASSANDRA_ORDERS, MONGO_ORDERS, majority};
use crate::orders::{OrderNumber, read_context};
use crate::report::{Finding, Goal, median};

const SERVERS_LEAST: f64 = 0.7;
const EMBEDDED_LEAST: f64 = 0.6;
const CASSANDRA_VERIFIES_LEAST: f64 = 1.5;
const EMBEDDED_VERIFIES_LEAST: f64 = 3.0;

pub fn run(size: Size) -> anyhow::Result<Vec<Finding>> {
    let folder = tempfile::tempdir_in(".").context("no room for the benchmark's data here")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let stage = Stage {
        folder: folder.path(),
        rounds: size.rounds,
    };
    runtime.block_on(async {
        let mut findings = stage.embedded(size.embedded_orders).await?;
        findings.extend(stage.mongo(size.mongo_orders).await?);
        findings.extend(stage.cassandra(size.cassandra_orders).await?);
        Ok(findings)
    })
}

/// Rates of all rounds.
#[derive(Debug, Default)]
struct Measured {
    ours: Vec<f64>,
    bare: Vec<f64>,
    verified: Vec<f64>,
}

impl Measured {
    fn add(&mut self, ours: Rate, bare: Rate, verified: Rate) {
        let Rate(ours) = ours;
        eprintln!(
            "  backfill {ours:.0}/s, bare {:.0}/s, verification {:.0}/s",
            bare.0, verified.0
        );
        self.ours.push(ours);
        self.bare.push(bare.0);
        self.verified.push(verified.0);
    }

    fn backfill(&self, id: &str, least: f64, bare: &str) -> Finding {
        let notes = format!(
            "{:.0} records/s against {:.0}/s of {bare}; verified at {:.0}/s",
            median(&self.ours),
            median(&self.bare),
            median(&self.verified),
        );
        Finding::of(
            id,
            &ratios(&self.ours, &self.bare),
            Goal::AtLeast(least),
            notes,
        )
    }

    fn verification(&self, id: &str, least: f64) -> Finding {
        let notes = format!(
            "{:.0} records/s, both sides read, against {:.0}/s of the backfill",
            median(&self.verified),
            median(&self.ours),
        );
        let ratios = ratios(&self.verified, &self.ours);
        Finding::of(id, &ratios, Goal::AtLeast(least), notes)
    }
}

fn ratios(these: &[f64], those: &[f64]) -> Vec<f64> {
    these
        .iter()
        .zip(those)
        .map(|(this, that)| this / that)
        .collect()
}

struct Stage<'a> {
    folder: &'a Path,
    rounds: usize,
}

impl Stage<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn say(&self, what: &str, round: usize) {
        eprintln!(
            "{what}, round {} of {}: mover, verifier, bare loader in turn",
            round + 1,
            self.rounds
        );
    }

    /// The orders that are moved, in a directory.
    async fn source(&self, name: &str, orders: u64) -> anyhow::Result<Arc<EmbeddedEngine>> {
        let source = engine::open(&self.path(name))?;
        engine::fill(&source, 0..orders).await?;
        Ok(Arc::new(source))
    }

    /// Where the record of one move is kept, durably, as a serving process does.
    fn control(&self, name: &str, round: usize) -> anyhow::Result<Arc<dyn ControlStore>> {
        let path = self.path(&format!("{name}-control-{round}"));
        Ok(Arc::new(engine::open(&path)?))
    }

    async fn embedded(&self, orders: u64) -> anyhow::Result<Vec<Finding>> {
        let source = self.source("embedded-source", orders).await?;
        let mut measured = Measured::default();
        for round in 0..self.rounds {
            self.say("embedded to embedded", round);
            let control = self.control("embedded", round)?;
            let target = Arc::new(engine::open(&self.path(&format!("ours-{round}")))?);
            let raw = engine::open(&self.path(&format!("raw-{round}")))?;
            let course = Course {
                source: source.clone(),
                target,
            };
            let loaded = async || bare::embedded(source.as_ref(), &raw, term()).await;
            // Who goes first changes.
            let (ours, bare) = match round % 2 {
                0 => (course.backfill(control, orders).await?, loaded().await?),
                _ => {
                    let bare = loaded().await?;
                    (course.backfill(control, orders).await?, bare)
                }
            };
            measured.add(ours, bare, course.verify(orders).await?);
        }
        Ok(vec![
            measured.backfill("backfill embedded", EMBEDDED_LEAST, "a scan+write loop"),
            measured.verification("verify embedded", EMBEDDED_VERIFIES_LEAST),
        ])
    }

    async fn mongo(&self, orders: u64) -> anyhow::Result<Vec<Finding>> {
        let set = testbed::mongo(Members::One).map_err(|error| anyhow!("{error}"))?;
        let source = self.source("mongo-source", orders).await?;
        let client = mongodb::Client::with_uri_str(set.uri()).await?;
        let mut measured = Measured::default();
        let mut documents: Option<Vec<Document>> = None;
        // One more, uncounted, to warm the servers and to make the documents.
        for round in 0..=self.rounds {
            self.say("embedded to MongoDB", round.saturating_sub(1));
            let names = ["ours", "bare"].map(|side| set.database(&format!("moves-{side}-{round}")));
            let target = Arc::new(open_mongo(&set, &names[0]).await?);
            // The same indexes and rules for the bare loader.
            drop(open_mongo(&set, &names[1]).await?);
            let course = Course {
                source: source.clone(),
                target,
            };
            let ours = course
                .backfill(self.control("mongo", round)?, orders)
                .await?;
            let [copied, empty] = [&names[0], &names[1]].map(|name| majority(&client, name));
            let prepared = match documents.take() {
                Some(prepared) => prepared,
                None => copied.find(Document::new()).await?.try_collect().await?,
            };
            ensure!(prepared.len() as u64 == orders, "not every order arrived");
            let bare = bare::mongo(&empty, &prepared).await?;
            let verified = course.verify(orders).await?;
            documents = Some(prepared);
            if round > 0 {
                measured.add(ours, bare, verified);
            }
            for name in &names {
                client.database(name).drop().await?;
            }
        }
        let bare = "the bare driver (find, insert)";
        Ok(vec![measured.backfill(
            "backfill MongoDB",
            SERVERS_LEAST,
            bare,
        )])
    }

    async fn cassandra(&self, orders: u64) -> anyhow::Result<Vec<Finding>> {
        let cluster = testbed::cassandra(Nodes::One).map_err(|error| anyhow!("{error}"))?;
        let source = self.source("cassandra-source", orders).await?;
        let mut measured = Measured::default();
        let mut requests = 0;
        for round in 0..=self.rounds {
            self.say("embedded to Cassandra", round.saturating_sub(1));
            let config = |side: &str| keyspace(&cluster, &format!("moves_{side}_{round}"));
            let target = Arc::new(CassandraEngine::open(config("ours")?).await?);
            let course = Course {
                source: source.clone(),
                target,
            };
            let recorder = CassandraEngine::open_recording(config("bare")?).await?;
            // The first order of a day is also entered into the calendar: it is not the usual one.
            recorded(source.as_ref(), &recorder, OrderNumber(0)).await?;
            let sample = OrderNumber(1);
            let put = recorded(source.as_ref(), &recorder, sample).await?;
            requests = put.requests();
            let ours = course
                .backfill(self.control("cassandra", round)?, orders)
                .await?;
            let bare = bare::cassandra(&put, sample, orders).await?;
            let verified = course.verify(orders).await?;
            if round > 0 {
                measured.add(ours, bare, verified);
            }
        }
        let bare = format!("the bare driver ({requests} requests a record)");
        Ok(vec![
            measured.backfill("backfill Cassandra", SERVERS_LEAST, &bare),
            measured.verification("verify Cassandra", CASSANDRA_VERIFIES_LEAST),
        ])
    }
}

fn term() -> MoverTerm {
    MoverTerm {
        move_name: "bare".to_owned(),
        term: 1,
    }
}

pub async fn open_mongo(set: &MongoSet, database: &str) -> anyhow::Result<MongoEngine> {
    let layout = Layout::parse(MONGO_ORDERS, "hybrid.toml")?;
    let config = MongoConfig::of_layout(&layout, "mongo", set.uri(), database);
    Ok(MongoEngine::open(config).await?)
}

fn keyspace(cluster: &CassandraCluster, name: &str) -> anyhow::Result<CassandraConfig> {
    let layout = Layout::parse(CASSANDRA_ORDERS, "cassandra-orders.toml")?;
    let mut keyspace = Keyspace::of(&layout, "orders")?;
    keyspace.name = cluster.keyspace(name);
    keyspace
        .replication
        .values_mut()
        .for_each(|copies| *copies = 1);
    // Re-reads in the background are no statements of a copy.
    keyspace.settings.sampled_repair_percent = None;
    Ok(CassandraConfig::new(cluster.contact_points(), keyspace))
}

/// The statements of putting one order's image.
async fn recorded(
    source: &dyn Engine,
    recorder: &CassandraEngine,
    order: OrderNumber,
) -> anyhow::Result<Recording> {
    let image = source.get(&order.key(), read_context()).await?;
    let image = image.context("a known order is not found")?;
    let context = WriteContext {
        authority: Authority::Mover { term: term() },
        now: order.at(),
        revision: image.newest_revision(),
    };
    recorder.take_recording();
    let outcome = recorder.apply(Change::PutImage { image }, context).await?;
    ensure!(outcome.is_done(), "an image was answered by {outcome:?}");
    let put = recorder.take_recording().context("this engine records")?;
    ensure!(put.requests() > 0, "nothing was recorded");
    Ok(put)
}
