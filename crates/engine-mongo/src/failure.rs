//! What the driver's errors mean for whoever asked.
//!
//! A read that fails has changed nothing. A write that fails has changed
//! nothing only if the server said so, or if no server was found to ask;
//! everything else is an unknown outcome, also when the driver has tried twice.

use std::future::IntoFuture;
use std::time::Duration;

use engine_api::EngineError;
use mongodb::error::{Error, ErrorKind, WriteFailure};

pub(crate) const FAILED_TO_PARSE: i32 = 9;
pub(crate) const INDEX_NOT_FOUND: i32 = 27;
pub(crate) const NAMESPACE_EXISTS: i32 = 48;
pub(crate) const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
pub(crate) const INVALID_RESUME_TOKEN: i32 = 260;
pub(crate) const CHANGE_STREAM_FATAL: i32 = 280;
pub(crate) const CHANGE_STREAM_HISTORY_LOST: i32 = 286;
pub(crate) const MAX_TIME_EXPIRED: i32 = 50;
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

const BAD_VALUE: i32 = 2;
pub(crate) const UNAUTHORIZED: i32 = 13;
pub(crate) const AUTHENTICATION_FAILED: i32 = 18;
const INDEX_OPTIONS_CONFLICT: i32 = 85;
const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
const OBJECT_TOO_LARGE: i32 = 10_334;
const OUT_OF_DISK_SPACE: i32 = 14_031;

/// Commands that fail with one of these have done nothing, whatever they are.
const DEFINITE: [i32; 13] = [
    BAD_VALUE,
    FAILED_TO_PARSE,
    UNAUTHORIZED,
    AUTHENTICATION_FAILED,
    INDEX_NOT_FOUND,
    NAMESPACE_EXISTS,
    INDEX_OPTIONS_CONFLICT,
    INDEX_KEY_SPECS_CONFLICT,
    DOCUMENT_VALIDATION_FAILURE,
    INVALID_RESUME_TOKEN,
    OBJECT_TOO_LARGE,
    DUPLICATE_KEY,
    OUT_OF_DISK_SPACE,
];

/// What was asked, which decides what a lost answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server said no; nothing was changed.
    Refused {
        code: i32,
        message: String,
    },
    Engine(EngineError),
}

impl From<Failure> for EngineError {
    fn from(failure: Failure) -> EngineError {
        match failure {
            Failure::Engine(error) => error,
            Failure::Refused {
                code: OBJECT_TOO_LARGE,
                message,
            } => EngineError::Invalid {
                reason: format!("the record is too large: {message}"),
            },
            Failure::Refused {
                code: OUT_OF_DISK_SPACE,
                message,
            } => EngineError::StorageFull { reason: message },
            Failure::Refused { code, message } => EngineError::Unavailable {
                reason: format!("{message}, code {code}"),
            },
        }
    }
}

/// Waits for an operation of the driver, at most `limit`.
pub(crate) async fn answer<T>(
    limit: Duration,
    asked: Asked,
    operation: impl IntoFuture<Output = mongodb::error::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, operation.into_future()).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(asked, &error)),
        Err(_) => {
            let reason = format!("no answer within {} ms", limit.as_millis());
            Err(Failure::Engine(lost(asked, reason)))
        }
    }
}

fn failure(asked: Asked, error: &Error) -> Failure {
    let reason = error.to_string();
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(refusal)) => Failure::Refused {
            code: refusal.code,
            message: refusal.message.clone(),
        },
        ErrorKind::Command(refusal) if asked == Asked::Read || DEFINITE.contains(&refusal.code) => {
            Failure::Refused {
                code: refusal.code,
                message: refusal.message.clone(),
            }
        }
        ErrorKind::ServerSelection { .. } => Failure::Engine(EngineError::Unavailable { reason }),
        _ => Failure::Engine(lost(asked, reason)),
    }
}

fn lost(asked: Asked, reason: String) -> EngineError {
    match asked {
        Asked::Read => EngineError::Unavailable { reason },
        Asked::Write => EngineError::OutcomeUnknown { reason },
    }
}
