//! Is every key in one range, and do partitions spread the load?

use super::each_table;
use crate::collection::Collection;
use crate::engine::EngineKind;
use crate::field::Field;
use crate::file::{Cut, Layout, RangeCut};
use crate::findings::{Finding, Severity};
use crate::table::KeyColumn;

pub(super) fn ordered_ranges(layout: &Layout) -> Vec<Finding> {
    each_cut(layout, |name, cut| {
        let Cut::Ranges { ranges, .. } = cut else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        if ranges.first().is_some_and(|range| range.from.is_some()) {
            let finding = Finding::refused(
                format!("the first range of {name} leaves out the keys below it"),
                "remove its from",
            );
            findings.push(finding.at("ranges").at(0).at("from"));
        }
        for (at, pair) in ranges.windows(2).enumerate() {
            if pair[1].from <= pair[0].from {
                let point = pair[1].from.as_ref();
                let point = point.map_or("none".to_owned(), ToString::to_string);
                let finding = Finding::refused(
                    format!("the ranges of {name} are not in order at split point {point}"),
                    "sort them by from, each split point once, only the first without one",
                );
                findings.push(finding.at("ranges").at(at + 1));
            }
        }
        findings
    })
}

pub(super) fn declared_zones(layout: &Layout) -> Vec<Finding> {
    each_cut(layout, |name, cut| {
        let Cut::Ranges { ranges, zones } = cut else {
            return Vec::new();
        };
        let tied = |range: &RangeCut, zone: &str| range.zone.as_deref() == Some(zone);
        let mut findings = Vec::new();
        for (at, range) in ranges.iter().enumerate() {
            let Some(zone) = range
                .zone
                .as_ref()
                .filter(|zone| !zones.contains_key(*zone))
            else {
                continue;
            };
            let finding = Finding::refused(
                format!("a range of {name} is tied to zone {zone}, which is not declared"),
                format!(
                    "declare it in [collections.{name}.zones] with its shards, or use the name that is there"
                ),
            );
            findings.push(finding.at("ranges").at(at).at("zone"));
        }
        for zone in zones.keys() {
            if !ranges.iter().any(|range| tied(range, zone)) {
                let finding = Finding::warning(
                    format!("no range of {name} is tied to zone {zone}"),
                    format!("write zone = \"{zone}\" at a range, or remove the zone"),
                );
                findings.push(finding.at("zones").at(zone));
            }
        }
        for (at, range) in ranges.iter().enumerate() {
            let zone = range
                .zone
                .as_ref()
                .and_then(|zone| Some((zone, zones.get(zone)?)));
            if let Some((zone, shards)) = zone.filter(|(_, shards)| !shards.contains(&range.shard))
            {
                let finding = Finding::refused(
                    format!(
                        "a range of {name} is on shard {}, outside its zone {zone}",
                        range.shard
                    ),
                    format!("write shard = one of {}", shards.join(", ")),
                );
                findings.push(finding.at("ranges").at(at));
            }
        }
        findings
    })
}

/// Where an engine declares shards, those of its collections are among them.
pub(super) fn declared_shards(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let declared = &layout.engine(&collection.live).shards;
        let (name, engine) = (collection.collection, &collection.live.engine);
        for shard in collection.cut.shards() {
            let known = if declared.is_empty() {
                shard == engine || layout.engine(&collection.live).kind == EngineKind::Embedded
            } else {
                declared.contains_key(shard)
            };
            if known {
                continue;
            }
            let finding = Finding::refused(
                format!(
                    "{name} are cut over shard {shard}, which engine {engine} does not declare"
                ),
                format!("add it to [engines.{engine}.shards] with its addresses"),
            );
            let key = match collection.cut {
                Cut::Slots { .. } => "initial_shards",
                Cut::Ranges { .. } => "ranges",
            };
            findings.push(finding.at(key).under(&collection.place(&collection.live)));
        }
    }
    findings
}

pub(super) fn shared_partitions(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, store, table| {
        let shared = |column: &KeyColumn| matches!(column, KeyColumn::Month(_) | KeyColumn::Day(_));
        if !table.partition.iter().all(shared) {
            return None;
        }
        let kind = layout.engine(store).kind;
        if table.partition.is_empty() && kind != EngineKind::Cassandra {
            return None;
        }
        let severity = match kind {
            EngineKind::Cassandra => Severity::Refused,
            EngineKind::Mongo | EngineKind::Embedded | EngineKind::Memory => Severity::Warning,
        };
        let id = collection.collection.id_field();
        let finding = Finding::new(
            severity,
            format!(
                "all writers of {} share one partition at a time",
                table.name
            ),
            format!("add \"bucket({id})\" to its partition and expected_rows to the table"),
        );
        Some(finding.at("partition"))
    })
}

/// Orders and closed carts are kept; whatever collects them without a calendar
/// in its key grows for ever.
pub(super) fn growing_partitions(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, store, table| {
        let bounded = |column: &KeyColumn| match column {
            KeyColumn::Month(_) | KeyColumn::Day(_) => true,
            // A session ends, and with it what is kept under it.
            KeyColumn::Field(field) => {
                *field == collection.collection.id_field() || *field == Field::SessionId
            }
            KeyColumn::Bucket(_) => false,
        };
        // Rows that leave again: expired ones, and those of a passing state.
        let passing = table.options.ttl_seconds.is_some() || table.only.is_some();
        let grows = match collection.collection {
            // An order leaves a closed cart behind.
            Collection::Orders | Collection::Carts => true,
            Collection::Products => false,
            Collection::Sessions => collection.lifetime.is_none(),
        };
        let kind = layout.engine(store).kind;
        if kind != EngineKind::Cassandra || !grows || passing || table.partition.iter().any(bounded)
        {
            return None;
        }
        let fix = match collection.collection {
            Collection::Carts => "write only = { status = \"active\" }: closed carts then leave it",
            _ => "add \"month(created_at)\" to its partition, or watch the largest partitions",
        };
        let message = format!("a partition of {} grows for ever", table.name);
        let finding = Finding::warning(message, fix);
        Some(finding.at("partition"))
    })
}

fn each_cut(layout: &Layout, check: impl Fn(Collection, &Cut) -> Vec<Finding>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let place = collection.place(&collection.live);
        let found = check(collection.collection, &collection.cut);
        findings.extend(found.into_iter().map(|finding| finding.under(&place)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn ranges_cover_every_key_once() {
        let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
        let ranges = |ranges: &str| {
            format!("shard_key = [\"product_id\"]\ncut = \"ranges\"\nranges = [{ranges}]")
        };
        check_rule(
            "ordered-ranges",
            &[(cut, &ranges("{}, { from = [\"m\"] }, { from = [\"c\"] }"))],
            &["not in order at split point \"c\""],
        );
        check_rule(
            "ordered-ranges",
            &[(cut, &ranges("{ from = [\"m\"] }"))],
            &["leaves out the keys below it"],
        );
    }

    #[test]
    fn zones_are_declared_used_and_hold_the_shards_of_their_ranges() {
        let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
        let zoned = |rest: &str| format!("shard_key = [\"product_id\"]\ncut = \"ranges\"\n{rest}");
        check_rule(
            "declared-zones",
            &[(
                cut,
                &zoned("ranges = [{ zone = \"west\" }]\nzones = { east = [\"local\"] }"),
            )],
            &[
                "zone west, which is not declared",
                "no range of products is tied to zone east",
            ],
        );
        check_rule(
            "declared-zones",
            &[(
                cut,
                &zoned("ranges = [{ zone = \"west\" }]\nzones = { west = [\"other\"] }"),
            )],
            &["is on shard local, outside its zone west"],
        );
        check_rule(
            "declared-zones",
            &[(
                cut,
                &zoned("ranges = [{ zone = \"west\" }]\nzones = { west = [\"local\"] }"),
            )],
            &[],
        );
    }

    #[test]
    fn a_shard_of_a_cluster_is_declared() {
        let kind = "kind = \"embedded\"";
        let carts = "shard_key = [\"cart_id\"]";
        let cut = format!("{carts}\ninitial_shards = [\"local\", \"b\"]");
        check_rule(
            "declared-shards",
            &[(kind, "kind = \"mongo\""), (carts, &cut)],
            &["carts are cut over shard b, which engine local does not declare"],
        );
        let shards = "kind = \"mongo\"\nshards = { local = [], b = [\"127.0.0.1:1\"] }";
        check_rule("declared-shards", &[(kind, shards), (carts, &cut)], &[]);
    }

    #[test]
    fn a_day_for_the_whole_shop_is_too_few_partitions() {
        let buckets = "\"day(created_at)\", \"bucket(order_id)\"";
        check_rule(
            "shared-partitions",
            &[(buckets, "\"day(created_at)\"")],
            &["warning: all writers of orders_by_period share one partition"],
        );
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule(
            "shared-partitions",
            &[cassandra, (buckets, "\"day(created_at)\"")],
            &["error: all writers"],
        );
    }

    #[test]
    fn a_partition_that_grows_with_its_user_is_pointed_out() {
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule(
            "growing-partitions",
            &[cassandra],
            &["a partition of orders_by_user grows for ever"],
        );
    }
}
