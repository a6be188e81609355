//! The control store beside the engine: CS.

use std::sync::Arc;

use crate::conformance::Need;
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::control::{ControlValue, SetOutcome};

cases! {
    "CS" ["W20"] a_control_value_is_set_only_by_who_saw_the_last_one [Need::Control];
    "CS" ["W20"] one_of_eight_concurrent_setters_wins [Need::Control];
    "CS" [] long_and_empty_control_values_come_back [Need::Control];
}

async fn a_control_value_is_set_only_by_who_saw_the_last_one(stage: Stage<'_>) -> Checked {
    let control = stage.control()?;
    let (name, other) = (stage.name("map"), stage.name("other"));
    ensure!(
        control.control_get(&name).await?.is_none(),
        "a value is there before anyone set it"
    );
    let lost = control
        .compare_and_set(&name, Some(1), b"x".to_vec())
        .await?;
    ensure!(
        lost == SetOutcome::Lost { current: None },
        "a change of no value was answered {lost:?}"
    );
    for (expected, number, bytes) in [
        (None, 1, b"one"),
        (Some(1), 2, b"two"),
        (Some(2), 3, b"tre"),
    ] {
        let set = control
            .compare_and_set(&name, expected, bytes.to_vec())
            .await?;
        ensure!(
            set == SetOutcome::Set { number },
            "value {number} was answered {set:?}"
        );
        let found = control.control_get(&name).await?;
        let written = Some(ControlValue {
            number,
            bytes: bytes.to_vec(),
        });
        ensure!(found == written, "value {number} is read as {found:?}");
        for stale in [
            None,
            Some(number - 1).filter(|stale| *stale > 0),
            Some(number + 1),
        ] {
            let lost = control.compare_and_set(&name, stale, b"x".to_vec()).await?;
            let expected = SetOutcome::Lost {
                current: written.clone(),
            };
            ensure!(
                lost == expected,
                "a setter who saw {stale:?} was answered {lost:?}"
            );
        }
    }
    ensure!(
        control.control_get(&other).await?.is_none(),
        "another name has a value"
    );
    Ok(())
}

async fn one_of_eight_concurrent_setters_wins(stage: Stage<'_>) -> Checked {
    let control = stage.control()?;
    let name = stage.name("map");
    let mut expected = None;
    for round in 1..=3u64 {
        let setters: Vec<_> = (0..8u8)
            .map(|number| {
                let (control, name) = (Arc::clone(&control), name.clone());
                tokio::spawn(
                    async move { control.compare_and_set(&name, expected, vec![number]).await },
                )
            })
            .collect();
        let mut winners = Vec::new();
        for (number, setter) in (0..8u8).zip(setters) {
            match setter
                .await
                .map_err(|error| Failure(format!("a setter broke off: {error}")))??
            {
                SetOutcome::Set { number: set } => winners.push((number, set)),
                SetOutcome::Lost { .. } => {}
            }
        }
        ensure!(
            winners.len() == 1 && winners[0].1 == round,
            "in round {round} {winners:?} won"
        );
        let found = control.control_get(&name).await?;
        let won = Some(ControlValue {
            number: round,
            bytes: vec![winners[0].0],
        });
        ensure!(found == won, "{won:?} won, stored is {found:?}");
        expected = Some(round);
    }
    Ok(())
}

async fn long_and_empty_control_values_come_back(stage: Stage<'_>) -> Checked {
    let control = stage.control()?;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("long", (0..200_000).map(|n| n as u8).collect()),
    ] {
        let name = stage.name(name);
        let bytes: Vec<u8> = bytes;
        control.compare_and_set(&name, None, bytes.clone()).await?;
        let found = control.control_get(&name).await?.map(|value| value.bytes);
        ensure!(
            found.as_ref() == Some(&bytes),
            "{} bytes under {name} do not come back",
            bytes.len()
        );
    }
    Ok(())
}
