//! Sessions: live until their end was acknowledged.

use super::Expected;
use crate::wire::Session;

#[derive(Clone, Debug)]
pub struct ExpectedSession {
    pub user_id: Option<String>,
    /// At least: of a fixed form, so that texts compare as times do.
    pub last_active: String,
    pub alive: Alive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alive {
    Yes,
    No,
    Maybe,
}

impl Expected {
    pub(super) fn session_active(&mut self, session: &Session) {
        let expected = self
            .sessions
            .entry(session.session_id.clone())
            .or_insert_with(|| ExpectedSession {
                user_id: session.user_id.clone(),
                last_active: session.last_active.clone(),
                alive: Alive::Yes,
            });
        if session.last_active < expected.last_active {
            self.verdict.wrong(format!(
                "session {} was active at {}, then at {}",
                session.session_id, expected.last_active, session.last_active
            ));
        }
        expected.last_active.clone_from(&session.last_active);
    }

    pub(super) fn session_ends(&mut self, session_id: &str, alive: Alive) {
        if let Some(session) = self.sessions.get_mut(session_id)
            && session.alive != Alive::No
        {
            session.alive = alive;
        }
    }
}
