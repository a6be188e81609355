//! The suite can fail: an engine that breaks one promise is found out, by the
//! case that is about that promise.

mod subjects;

use engine_api::Durability;
use engine_api::conformance::run;
use subjects::{Fault, Namespace, TestSubject};

const FAULTS: &[(Fault, &str)] = &[
    (
        Fault::AcknowledgesRemovalsWithoutApplying,
        "a removed record is read as a mark",
    ),
    (Fault::AppliesHalfOfACommit, "one refusal refuses them all"),
    (
        Fault::CallsEveryRowAStray,
        "rows that follow their records are no strays",
    ),
    (
        Fault::CollectsMoreThanAsked,
        "a call collects at most as much as asked",
    ),
    (
        Fault::ComparesWholeRecords,
        "a part removed while its image was copied stays removed",
    ),
    (
        Fault::CountsRepeatedTakes,
        "an order takes once however often it asks",
    ),
    (
        Fault::CreatesOverWhatExists,
        "a second creator meets the record of the first",
    ),
    (
        Fault::CutsMicroseconds,
        "every field comes back as it was given",
    ),
    (
        Fault::DropsEntriesOfRemovals,
        "every applied change has an entry when it is acknowledged",
    ),
    (
        Fault::ForgetsInACrash,
        "acknowledged changes survive a crash",
    ),
    (Fault::ForgetsInACrash, "fences survive a crash"),
    (Fault::ForgetsInACrash, "terms survive a crash"),
    (
        Fault::ForgetsInACrash,
        "the journal and its positions survive a crash",
    ),
    (Fault::ForgetsInACrash, "control values survive a crash"),
    (
        Fault::ForgetsWhatWasSaved,
        "an image that changes nothing saves what was condemned",
    ),
    (
        Fault::ForgetsTheGuard,
        "a patch of an ordered cart fails its guard",
    ),
    (Fault::ForgetsThePrice, "a take at another price is refused"),
    (
        Fault::HidesMarksFromLooks,
        "what a scan shows is what it hands over",
    ),
    (
        Fault::HidesMarksFromScans,
        "a scan reaches every image once marks included",
    ),
    (
        Fault::IgnoresTheExpectedRevision,
        "one of eight concurrent changes wins",
    ),
    (
        Fault::IgnoresTheExpectedRevision,
        "an order is shipped or cancelled never both",
    ),
    (
        Fault::IgnoresTheFence,
        "a write under an older generation is refused",
    ),
    (Fault::IgnoresTheTerm, "images of a lost term are refused"),
    (Fault::JournalsForgetting, "forgetting leaves no entry"),
    (
        Fault::JournalsUnchangedImages,
        "an image that is not newer leaves no entry",
    ),
    (Fault::LetsTheExpiredLive, "an expired record is on no path"),
    (
        Fault::OverwritesNewerParts,
        "a patch repeated after a newer one changes nothing",
    ),
    (
        Fault::ReordersTheJournal,
        "pages of the journal make the whole",
    ),
    (
        Fault::RestoresByMerging,
        "a restored record is the image whatever stood there",
    ),
    (
        Fault::RestartsTheJournalSilently,
        "a position that was trimmed away is lost loudly",
    ),
    (
        Fault::SealsTooEarly,
        "what was let through stands at or before the seal",
    ),
    (
        Fault::ShowsStalePaths,
        "an ordered cart is no longer the active one",
    ),
    (
        Fault::SkipsTiesBetweenPages,
        "pages follow one another without gap or repeat",
    ),
    (
        Fault::StripsMarksFromImages,
        "a part removed while its image was copied stays removed",
    ),
    (
        Fault::TouchesAllParts,
        "a patch touches the named parts only",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_promise_is_found_by_its_case() {
    for (fault, expected) in FAULTS {
        let subject = TestSubject::new(*fault, Namespace::PerCase).declaring(Durability::Disk);
        let report = run(&subject).await;
        let failed: Vec<_> = report.failed().map(|case| case.name.as_str()).collect();
        assert!(
            failed.contains(expected),
            "{fault:?} should fail {expected:?}, it fails {failed:?}"
        );
        let most = report.cases.len() / 2;
        assert!(
            failed.len() < most,
            "{fault:?} is one fault, but fails {} cases",
            failed.len()
        );
    }
}

#[tokio::test]
#[should_panic(expected = "E7  a patch of an ordered cart fails its guard … FAILED (W2)")]
async fn a_failed_case_is_told_with_its_line_and_rule() {
    run(&TestSubject::new(
        Fault::ForgetsTheGuard,
        Namespace::PerCase,
    ))
    .await
    .assert_passed();
}
