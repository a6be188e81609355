//! Does what expires expire as its table expects, and nothing else?

use super::each_table;
use crate::collection::Collection;
use crate::field::Field;
use crate::file::{CollectionLayout, Layout};
use crate::findings::Finding;
use crate::place::Place;
use crate::table::{KeyColumn, Table};

pub(super) fn window_compaction(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, store, table| {
        if !has_windows(table) {
            return None;
        }
        // What has reached the history is not changed any more.
        let append_only = !std::ptr::eq(store, &collection.live);
        let fault = match (table.options.ttl_seconds, append_only) {
            (None, _) => "without a TTL, so no window is ever dropped",
            (Some(_), false) => "but its rows are updated: windows do not drop",
            (Some(_), true) => return None,
        };
        let finding = Finding::refused(
            format!("{} compacts by time window, {fault}", table.name),
            "write compaction = \"UnifiedCompactionStrategy\" or \"LeveledCompactionStrategy\"",
        );
        Some(finding.at("compaction"))
    })
}

/// W7.
pub(super) fn ttl_collects_garbage(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, _, table| {
        let ttl_seconds = table.options.ttl_seconds?;
        let (name, records) = (&table.name, collection.collection);
        let finding = match collection.lifetime.map(|lifetime| lifetime.seconds()) {
            None => Finding::refused(
                format!("{name} has a TTL, but {records} never expire"),
                "remove ttl_seconds",
            ),
            Some(_) if holds_carts_of_users(collection, table) => Finding::refused(
                format!("{name} has a TTL that would remove users' carts, which never expire"),
                "remove ttl_seconds here; a table by session_id may have it",
            ),
            Some(lifetime) if ttl_seconds < u64::from(lifetime) => Finding::refused(
                format!(
                    "{name} collects rows after {ttl_seconds} s, before they expire at {lifetime} s"
                ),
                "raise ttl_seconds to lifetime_seconds, or lower lifetime_seconds",
            ),
            Some(_) => return None,
        };
        Some(finding.at("ttl_seconds"))
    })
}

/// C7: a guest cart does not outlive its session.
pub(super) fn cart_within_session(layout: &Layout) -> Vec<Finding> {
    let lifetime = |collection| layout.collection(collection).lifetime;
    match (lifetime(Collection::Carts), lifetime(Collection::Sessions)) {
        (Some(cart), Some(session)) if cart > session => {
            let finding = Finding::warning(
                format!(
                    "guest carts are kept {} s, but their sessions {} s: the cart ends with its session",
                    cart.seconds(),
                    session.seconds()
                ),
                "lower lifetime_seconds of carts to that of sessions, or raise the latter",
            );
            let place = Place::new(["collections", "carts", "lifetime_seconds"]);
            vec![finding.under(&place)]
        }
        _ => Vec::new(),
    }
}

fn has_windows(table: &Table) -> bool {
    let compaction = table.options.compaction.as_deref();
    compaction == Some("TimeWindowCompactionStrategy")
}

/// Only guests' carts have a session, so that a table by session holds no others.
fn holds_carts_of_users(collection: &CollectionLayout, table: &Table) -> bool {
    collection.collection == Collection::Carts
        && !table
            .partition
            .contains(&KeyColumn::Field(Field::SessionId))
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const PERIOD: &str = "initial_buckets = 8";
    const SESSIONS: &str = "[collections.sessions.tables.sessions_by_user]";

    #[test]
    fn windows_need_a_ttl_and_rows_that_stay_as_they_are() {
        let windows = "compaction = \"TimeWindowCompactionStrategy\"";
        check_rule(
            "window-compaction",
            &[(PERIOD, &format!("{PERIOD}\n{windows}"))],
            &["error: orders_by_period compacts by time window, without a TTL"],
        );
        let both = format!("{SESSIONS}\n{windows}\nttl_seconds = 604800");
        check_rule(
            "window-compaction",
            &[(SESSIONS, &both)],
            &["error: sessions_by_user compacts by time window, but its rows are updated"],
        );
    }

    #[test]
    fn a_ttl_never_ends_what_still_lives() {
        check_rule(
            "ttl-collects-garbage",
            &[(PERIOD, "initial_buckets = 8\nttl_seconds = 5")],
            &["orders never expire"],
        );
        check_rule(
            "ttl-collects-garbage",
            &[(SESSIONS, &format!("{SESSIONS}\nttl_seconds = 86400"))],
            &["collects rows after 86400 s, before they expire at 604800 s"],
        );
        let by_user = "[collections.carts.tables.active_carts_by_user]";
        check_rule(
            "ttl-collects-garbage",
            &[(by_user, &format!("{by_user}\nttl_seconds = 864000"))],
            &["would remove users' carts"],
        );
        let by_session = "[collections.carts.tables.active_carts_by_session]";
        check_rule(
            "ttl-collects-garbage",
            &[(by_session, &format!("{by_session}\nttl_seconds = 864000"))],
            &[],
        );
    }

    #[test]
    fn a_guest_cart_ends_with_its_session() {
        let a_day = ("604800 # sessions", "86400 # sessions");
        check_rule(
            "cart-within-session",
            &[a_day],
            &["kept 604800 s, but their sessions 86400 s"],
        );
    }
}
