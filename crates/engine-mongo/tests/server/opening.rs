use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;

#[tokio::test]
async fn opening_twice_changes_nothing_and_fences_stay() {
    let Some(set) = set() else { return };
    let database = set.database("reopened");
    let first = open(&set.uri(), &database).await;
    first.claim_term(term(1)).await.unwrap();
    first.raise_fence(fence(5), term(1), now()).await.unwrap();
    let second = open(&set.uri(), &database).await;
    let refused = second
        .apply(create("S-1", session_header("S-1"), vec![]), router(4))
        .await;
    assert_eq!(
        refused,
        Err(EngineError::Fenced {
            used: Generation(4),
            fence: Generation(5)
        })
    );
    assert!(
        second
            .apply(create("S-1", session_header("S-1"), vec![]), router(5))
            .await
            .unwrap()
            .is_done()
    );
}

#[tokio::test]
async fn engines_that_open_one_new_database_at_once_agree() {
    let Some(set) = set() else { return };
    let database = set.database("raced");
    let uri = set.uri();
    let opening = (0..4).map(|_| open(&uri, &database));
    let engines = futures::future::join_all(opening).await;
    engines[0].claim_term(term(1)).await.unwrap();
    engines[1]
        .raise_fence(fence(2), term(1), now())
        .await
        .unwrap();
    let refused = engines[3]
        .apply(create("S-1", session_header("S-1"), vec![]), router(1))
        .await;
    assert_eq!(
        refused,
        Err(EngineError::Fenced {
            used: Generation(1),
            fence: Generation(2)
        })
    );
}

/// Opens with little patience and tells why not.
async fn refusal(uri: &str) -> OpenError {
    let config = MongoConfig {
        selection_ms_max: 1_000,
        ..MongoConfig::new(uri, "refused", tables::all())
    };
    MongoEngine::open(config).await.unwrap_err()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_what_to_do() {
    let refused = refusal("mongodb://shopper:secret@127.0.0.1:1/?replicaSet=rs0").await;
    assert!(
        matches!(&refused, OpenError::Unreachable { addresses, .. } if addresses == "127.0.0.1:1"),
        "{refused}"
    );
    let said = refused.to_string();
    assert!(said.contains("start the replica set"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn wrong_credentials_are_told_from_a_server_that_is_away() {
    let Some(set) = set() else { return };
    let uri = set.uri().replace("mongodb://", "mongodb://shopper:secret@");
    let refused = refusal(&uri).await;
    assert!(
        matches!(refused, OpenError::WrongCredentials { .. }),
        "{refused}"
    );
    let said = refused.to_string();
    assert!(said.contains("correct name and password"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn a_lone_server_is_refused_however_it_is_addressed() {
    let Some(lone) = required_or_skip(MongoSet::standalone(), "MongoDB") else {
        return;
    };
    for uri in [lone.uri(), format!("{}?replicaSet=rs0", lone.uri())] {
        let refused = refusal(&uri).await;
        assert!(
            matches!(refused, OpenError::NotAReplicaSet { .. }),
            "{uri}: {refused}"
        );
    }
}

#[tokio::test]
async fn the_set_that_is_really_there_is_named() {
    let Some(set) = set() else { return };
    let refused = refusal(&set.uri().replace("rs0", "rs9")).await;
    assert!(
        matches!(&refused, OpenError::OtherSet { found, .. } if found == "rs0"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_set_without_a_majority_has_no_primary_until_one_comes_back() {
    let Some(set) = own_set(Members::Three) else {
        return;
    };
    for index in [1, 2] {
        set.kill9(index).unwrap();
    }
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while set.primary().is_some() {
        assert!(std::time::Instant::now() < patience, "it never steps down");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = refusal(&set.uri()).await;
    assert!(matches!(refused, OpenError::NoPrimary { .. }), "{refused}");
    set.restart(1).unwrap();
    open(&set.uri(), "opened").await;
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_the_version_to_have() {
    let Some(set) = set() else { return };
    let server = set.uri();
    let server = server
        .trim_start_matches("mongodb://")
        .split('/')
        .next()
        .unwrap();
    let old = older_server(server.parse().unwrap());
    let refused = refusal(&format!("mongodb://{old}/?directConnection=true")).await;
    assert!(matches!(refused, OpenError::TooOld { .. }), "{refused}");
    assert!(
        refused.to_string().contains("upgrade it to MongoDB 6.0"),
        "{refused}"
    );
}

/// Passes everything on to a server, but makes it look like MongoDB 5.0.
fn older_server(server: SocketAddr) -> SocketAddr {
    const WIRE_VERSION_OF_5_0: i32 = 13;
    const FIELD: &[u8] = b"\x10maxWireVersion\0";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client?, TcpStream::connect(server)?);
            let (mut questions, mut asked) = (client.try_clone()?, server.try_clone()?);
            std::thread::spawn(move || std::io::copy(&mut questions, &mut asked));
            std::thread::spawn(move || -> std::io::Result<()> {
                loop {
                    let mut length = [0; 4];
                    server.read_exact(&mut length)?;
                    let mut message = vec![0; i32::from_le_bytes(length) as usize];
                    message[..4].copy_from_slice(&length);
                    server.read_exact(&mut message[4..])?;
                    if let Some(at) = message.windows(FIELD.len()).position(|part| part == FIELD) {
                        let value = at + FIELD.len();
                        message[value..value + 4]
                            .copy_from_slice(&WIRE_VERSION_OF_5_0.to_le_bytes());
                    }
                    client.write_all(&message)?;
                }
            });
        }
        Ok::<(), std::io::Error>(())
    });
    address
}

#[tokio::test]
async fn tables_that_cannot_be_kept_are_refused_before_anything_is_asked() {
    let open =
        |tables| MongoEngine::open(MongoConfig::new("mongodb://127.0.0.1:1", "nowhere", tables));
    let orphan = tables::derived("sessions_by_user", Collection::Sessions, &[Field::UserId]);
    let refused = open(vec![orphan]).await.unwrap_err();
    assert_eq!(
        refused,
        OpenError::NoAuthority {
            collection: Collection::Sessions
        }
    );
    let month = Table {
        partition: vec![engine_api::layout::KeyColumn::Month(Field::CreatedAt)],
        ..tables::derived("sessions_by_month", Collection::Sessions, &[])
    };
    let refused = open(vec![tables::authority(Collection::Sessions), month])
        .await
        .unwrap_err();
    assert!(
        matches!(refused, OpenError::TableRefused { .. }),
        "{refused}"
    );
}
