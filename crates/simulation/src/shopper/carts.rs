//! Carts: lines come and go while the cart is active; status, removal and a
//! new beginning race with them.

use engine_api::{Change, PartChange, PartKey, PartsChange, RecordKey};

use super::Shopper;
use crate::scenery::{
    LINES, USERS, cart, cart_header, change_if, create, line, patch_while_active, remove,
    with_status,
};

impl Shopper {
    pub(super) async fn visit_cart(&self) {
        let user = self.pick(&USERS);
        let key = cart(user);
        let wish = self.chance().below(100);
        match wish {
            0..=19 => {
                let mut parts = vec![];
                if self.chance().percent(60) {
                    parts.push((PartKey::line(self.pick(&LINES)), line(&self.shared.marks)));
                }
                let header = cart_header(user, layout::path::STATUS_ACTIVE, &self.shared.marks);
                self.write(vec![create(&key, header, parts)]).await;
            }
            20..=54 => {
                self.write(vec![self.lines_change(&key)]).await;
            }
            // Two at once, in the same tick of the router's clock.
            55..=64 => {
                let (one, other) = (self.lines_change(&key), self.lines_change(&key));
                futures::join!(self.write(vec![one]), self.write(vec![other]));
            }
            65..=81 => {
                self.read(&key).await;
            }
            82..=89 => self.change_status(&key).await,
            _ => {
                if let Some(image) = self.read_live(&key).await {
                    self.write(vec![remove(&key, image.header.revision)]).await;
                }
            }
        }
    }

    /// One or two lines set or removed.
    fn lines_change(&self, key: &RecordKey) -> Change {
        let mut names = vec![self.pick(&LINES)];
        let second = self.pick(&LINES);
        if second != names[0] && self.chance().percent(40) {
            names.push(second);
        }
        let parts = names.into_iter().map(|name| {
            let removes = self.chance().percent(35);
            let change = match removes {
                true => PartChange::Remove,
                false => PartChange::Set(line(&self.shared.marks)),
            };
            (PartKey::line(name), change)
        });
        patch_while_active(key, parts.collect())
    }

    async fn change_status(&self, key: &RecordKey) {
        let Some(image) = self.read_live(key).await else {
            return;
        };
        let Some(header) = image.header.content.live() else {
            return;
        };
        let status = self.pick(&["ordered", "abandoned", layout::path::STATUS_ACTIVE]);
        let header = with_status(header, status, &self.shared.marks);
        let change = if self.chance().percent(30) {
            let parts = PartsChange::Replace(vec![(
                PartKey::line(self.pick(&LINES)),
                line(&self.shared.marks),
            )]);
            let expected = image.header.revision;
            Change::ChangeIf {
                key: key.clone(),
                expected,
                header,
                parts,
            }
        } else {
            change_if(key, image.header.revision, header)
        };
        self.write(vec![change]).await;
    }
}
