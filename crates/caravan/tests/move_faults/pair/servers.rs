//! Servers of the table's own.

use std::sync::Arc;

use testbed::{
    CassandraCluster, ExclusiveCassandraCluster, ExclusiveMongoSet, Members, MongoSet, Nodes,
    Unavailable, required_or_skip,
};

pub enum Server {
    Mongo(ExclusiveMongoSet),
    Cassandra(ExclusiveCassandraCluster),
}

/// Those under the two sides, and perhaps one that nobody kills.
#[derive(Clone, Default)]
pub struct Servers {
    pub sides: Vec<Option<Arc<Server>>>,
    beside: Option<Arc<Server>>,
}

impl Servers {
    pub fn under(sides: [Server; 2]) -> Servers {
        Servers {
            sides: sides.map(|server| Some(Arc::new(server))).to_vec(),
            beside: None,
        }
    }

    /// The first side is a directory.
    pub fn under_the_second(server: Server) -> Servers {
        Servers {
            sides: vec![None, Some(Arc::new(server))],
            beside: None,
        }
    }

    pub fn beside(self, server: Server) -> Servers {
        Servers {
            beside: Some(Arc::new(server)),
            ..self
        }
    }

    pub fn address(&self, side: usize) -> String {
        self.sides[side].as_ref().unwrap().address()
    }

    pub fn address_beside(&self) -> String {
        self.beside.as_ref().unwrap().address()
    }
}

impl Server {
    pub fn kill(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.kill9(0),
            Server::Cassandra(cluster) => cluster.kill9(0),
        }
    }

    /// On the records that it had.
    pub fn restart(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.restart(0),
            Server::Cassandra(cluster) => cluster.restart(0),
        }
    }

    /// As a layout's shard has it.
    fn address(&self) -> String {
        match self {
            Server::Mongo(set) => set.uri(),
            Server::Cassandra(cluster) => {
                let point = cluster.contact_points()[0];
                format!("{point}/?replication=datacenter1:1")
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "others may miss their servers")]
pub fn none() -> Option<Servers> {
    Some(Servers::default())
}

pub fn mongo() -> Option<Server> {
    required_or_skip(MongoSet::exclusive(Members::One), "MongoDB").map(Server::Mongo)
}

pub fn cassandra() -> Option<Server> {
    let cluster = required_or_skip(CassandraCluster::exclusive(Nodes::One), "Cassandra");
    cluster.map(Server::Cassandra)
}
