//! Does what expires expire as its table expects, and nothing else?

use crate::collection::Collection;
use crate::field::Field;
use crate::file::{CollectionLayout, Layout};
use crate::findings::Finding;
use crate::table::{KeyColumn, Table};

/// Time windows are dropped whole: only if every row of a window expires, and
/// no later change scatters a record over several windows.
pub(super) fn window_compaction(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let history = collection.history.as_ref().map(|history| &history.store);
        for store in collection.stores() {
            let append_only = history.is_some_and(|history| std::ptr::eq(history, store));
            for table in store.tables.iter().filter(|table| has_windows(table)) {
                if table.options.ttl_seconds.is_none() {
                    findings.push(Finding::refused(
                        format!("{} compacts by time window without a TTL, so no window is ever dropped", table.name),
                        "use UnifiedCompactionStrategy or LeveledCompactionStrategy",
                    ));
                } else if !append_only {
                    findings.push(Finding::warning(
                        format!("{} compacts by time window, but its rows are updated: windows do not drop", table.name),
                        "use UnifiedCompactionStrategy or LeveledCompactionStrategy",
                    ));
                }
            }
        }
    }
    findings
}

/// W7: a TTL only collects what has expired already.
pub(super) fn ttl_collects_garbage(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        for table in &store.tables {
            let Some(ttl_seconds) = table.options.ttl_seconds else {
                continue;
            };
            let Some(lifetime) = collection.lifetime else {
                findings.push(Finding::refused(
                    format!(
                        "{} has a TTL, but {} never expire",
                        table.name, collection.collection
                    ),
                    "remove ttl_seconds",
                ));
                continue;
            };
            if holds_carts_of_users(collection, table) {
                findings.push(Finding::refused(
                    format!(
                        "{} has a TTL that would remove users' carts, which never expire",
                        table.name
                    ),
                    "remove ttl_seconds here; a table by session_id may have it",
                ));
            } else if ttl_seconds < u64::from(lifetime.seconds()) {
                findings.push(Finding::refused(
                    format!(
                        "{} collects rows after {ttl_seconds} s, before they expire at {} s",
                        table.name,
                        lifetime.seconds()
                    ),
                    "raise ttl_seconds to lifetime_seconds, or lower lifetime_seconds",
                ));
            }
        }
    }
    findings
}

/// C7: a guest cart does not outlive its session.
pub(super) fn cart_within_session(layout: &Layout) -> Vec<Finding> {
    let lifetime = |collection| layout.collection(collection).lifetime;
    match (lifetime(Collection::Carts), lifetime(Collection::Sessions)) {
        (Some(cart), Some(session)) if cart > session => vec![Finding::warning(
            format!(
                "guest carts are kept {} s, but their sessions {} s: the cart ends with its session",
                cart.seconds(),
                session.seconds()
            ),
            "lower lifetime_seconds of carts to that of sessions, or raise the latter",
        )],
        _ => Vec::new(),
    }
}

fn has_windows(table: &Table) -> bool {
    let compaction = table.options.compaction.as_deref();
    matches!(compaction, Some("TimeWindowCompactionStrategy" | "TWCS"))
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
            &["refused: orders_by_period compacts by time window without a TTL"],
        );
        let both = format!("{SESSIONS}\n{windows}\nttl_seconds = 604800");
        check_rule(
            "window-compaction",
            &[(SESSIONS, &both)],
            &["warning: sessions_by_user"],
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
