use super::*;

#[tokio::test]
async fn every_kind_of_value_survives_the_server() {
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("values")).await;
    let nested = vec![
        Value::text("zero\0byte, я, $where, a.b"),
        Value::Int(i64::MIN),
        Value::Decimal("-79228162514264337593543950335".parse().unwrap()),
        Value::Decimal("0.0000000000000000000000000001".parse().unwrap()),
        Value::Timestamp(Timestamp::from_unix_micros(i64::MAX)),
        Value::Inet("2001:db8::1".parse().unwrap()),
        Value::Blob(vec![0, 255]),
        Value::List(vec![Value::Map(BTreeMap::from([(
            String::new(),
            Value::List(vec![]),
        )]))]),
    ];
    let keys = ["", "a.b", "$set", "\0", "plain", "_id", "я", "$"].map(str::to_owned);
    let header = session_header("S-1")
        .with(Field::IpAddress, Value::Inet("10.0.0.1".parse().unwrap()))
        .with(
            Field::SessionData,
            Value::Map(keys.into_iter().zip(nested).collect()),
        );
    let context = router(1);
    let outcome = engine
        .apply(create("S-1", header.clone(), vec![]), context.clone())
        .await
        .unwrap();
    assert_eq!(
        outcome,
        Outcome::Done {
            revision: context.revision
        }
    );
    assert_eq!(
        stored(&engine, "S-1").await.unwrap().header.content.live(),
        Some(&header)
    );
}
