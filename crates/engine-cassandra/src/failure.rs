//! What a failed request means: nothing happened, or nobody knows.
//!
//! Writes are never marked idempotent for the driver. It would send them again
//! by itself, and a definite refusal of the second attempt would hide that the
//! first one's answer was lost.

use engine_api::EngineError;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};

/// A read changes nothing, whatever became of it.
pub(crate) fn of_read(error: ExecutionError) -> EngineError {
    match refusal(&error) {
        Some(Refusal::Malformed) => EngineError::Invalid {
            reason: error.to_string(),
        },
        Some(Refusal::NotApplied) | None => EngineError::Unavailable {
            reason: error.to_string(),
        },
    }
}

pub(crate) fn of_write(error: ExecutionError) -> EngineError {
    match refusal(&error) {
        Some(Refusal::Malformed) => EngineError::Invalid {
            reason: error.to_string(),
        },
        Some(Refusal::NotApplied) => EngineError::Unavailable {
            reason: error.to_string(),
        },
        None => EngineError::OutcomeUnknown {
            reason: error.to_string(),
        },
    }
}

/// A conditional write takes several rounds: too few servers in a later one
/// says nothing about what an earlier one has proposed.
pub(crate) fn of_decision(error: ExecutionError) -> EngineError {
    match &error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Unavailable { .. },
            _,
        )) => EngineError::OutcomeUnknown {
            reason: error.to_string(),
        },
        _ => of_write(error),
    }
}

pub(crate) fn damaged(what: impl std::fmt::Display) -> EngineError {
    EngineError::Damaged {
        reason: what.to_string(),
    }
}

enum Refusal {
    NotApplied,
    Malformed,
}

/// `None`: the request was sent and may have been carried out.
fn refusal(error: &ExecutionError) -> Option<Refusal> {
    match error {
        ExecutionError::BadQuery(_) => Some(Refusal::Malformed),
        ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => Some(Refusal::NotApplied),
        ExecutionError::LastAttemptError(attempt) => refused_attempt(attempt),
        _ => None,
    }
}

fn refused_attempt(attempt: &RequestAttemptError) -> Option<Refusal> {
    match attempt {
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_) => Some(Refusal::Malformed),
        RequestAttemptError::UnableToAllocStreamId => Some(Refusal::NotApplied),
        RequestAttemptError::DbError(error, _) => match error {
            DbError::SyntaxError | DbError::Invalid => Some(Refusal::Malformed),
            DbError::Unavailable { .. }
            | DbError::IsBootstrapping
            | DbError::Unauthorized
            | DbError::AuthenticationError
            | DbError::ConfigError => Some(Refusal::NotApplied),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Remedy;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    use super::*;

    fn answered(error: DbError) -> ExecutionError {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, String::new()))
    }

    fn too_few() -> ExecutionError {
        answered(DbError::Unavailable {
            consistency: Consistency::LocalQuorum,
            required: 2,
            alive: 1,
        })
    }

    fn timed_out() -> ExecutionError {
        answered(DbError::WriteTimeout {
            consistency: Consistency::LocalQuorum,
            received: 1,
            required: 2,
            write_type: WriteType::Cas,
        })
    }

    #[test]
    fn a_lost_answer_is_never_called_a_failure() {
        assert_eq!(of_write(timed_out()).remedy(), Remedy::ReadBack);
        assert_eq!(of_decision(timed_out()).remedy(), Remedy::ReadBack);
        assert_eq!(
            of_write(ExecutionError::RequestTimeout(Default::default())).remedy(),
            Remedy::ReadBack
        );
        assert_eq!(of_write(too_few()).remedy(), Remedy::Retry);
        assert_eq!(of_decision(too_few()).remedy(), Remedy::ReadBack);
        assert_eq!(of_read(timed_out()).remedy(), Remedy::Retry);
        assert_eq!(
            of_write(answered(DbError::Invalid)).remedy(),
            Remedy::GiveUp
        );
    }
}
