//! Shopper sessions: opened, touched, expired, closed, opened again.

use engine_api::{Change, Guard, PartChange};

use super::Shopper;
use crate::scenery::{SESSIONS, USERS, activity, create, remove, session, session_header};

/// How long a session lives after a touch.
const LIVES_MS_LEAST: u64 = 150;
const LIVES_MS_MOST: u64 = 1_500;

impl Shopper {
    pub(super) async fn visit_session(&self) {
        let id = self.pick(&SESSIONS);
        let key = session(id);
        let wish = self.chance().below(100);
        let lives_ms = self.chance().between(LIVES_MS_LEAST, LIVES_MS_MOST);
        let parts = activity(self.now(), lives_ms, &self.shared.marks);
        match wish {
            0..=34 => {
                let header = session_header(id, self.pick(&USERS), &self.shared.marks);
                self.write(vec![create(&key, header, parts.to_vec())]).await;
            }
            35..=69 => {
                let parts = parts
                    .map(|(part, fields)| (part, PartChange::Set(fields)))
                    .to_vec();
                let guard = Guard::default();
                self.write(vec![Change::Patch { key, guard, parts }]).await;
            }
            70..=89 => {
                self.read(&key).await;
            }
            _ => {
                if let Some(image) = self.read_live(&key).await {
                    self.write(vec![remove(&key, image.header.revision)]).await;
                }
            }
        }
    }
}
