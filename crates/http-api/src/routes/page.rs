//! The first page: what the shop does now, and who serves what.

mod html;

pub(crate) use html::{Html, html, whole_page};

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use layout::SLOT_COUNT;
use router::{CollectionMap, Cut, Map};

use crate::answer;
use crate::app::App;
use crate::figures::FiguresView;
use crate::problem::Problem;

const LINKS: [(&str, &str, &str); 5] = [
    ("/docs", "Interface", "every path, to be tried out"),
    ("/openapi.json", "OpenAPI", "the same for programs"),
    ("/problems", "Problems", "what each error means"),
    ("/metrics", "Metrics", "for Prometheus"),
    ("/health/ready", "Readiness", "for load balancers"),
];

/// A look at the shop.
#[utoipa::path(
    get, path = "/", tag = "operation",
    responses((status = 200, description = "A page", body = String, content_type = "text/html")),
)]
pub(crate) async fn first_page(State(app): State<App>) -> Response {
    let map = app.shop.router().map();
    let mut page = Html::new("Caravan");
    head(&mut page, &app);
    tiles(&mut page, &view(&app));
    map_table(&mut page, &map);
    links(&mut page, app.docs_link.as_deref());
    page.script(include_str!("page/live.js"));
    html(page)
}

/// The figures of the first page.
#[utoipa::path(
    get, path = "/figures.json", tag = "operation",
    responses((status = 200, description = "Figures of now", body = FiguresView)),
)]
pub(crate) async fn figures(State(app): State<App>) -> Result<Response, Problem> {
    answer::json(StatusCode::OK, &view(&app))
}

fn view(app: &App) -> FiguresView {
    let in_flight = app.admission.in_flight();
    let totals = app.meters.totals();
    app.figures.view(app.world.elapsed(), &totals, in_flight)
}

fn head(page: &mut Html, app: &App) {
    page.raw("<header><h1>Caravan</h1><p class=lead>");
    page.text("Carts, orders, products and sessions of one shop.");
    page.raw("</p><p class=quiet>version ")
        .text(&app.build.version);
    if let Some(commit) = &app.build.commit {
        page.raw(", <code>").text(commit).raw("</code>");
    }
    if app.is_draining() {
        page.raw(", <strong>draining</strong>");
    }
    page.raw("</p></header>");
}

fn tiles(page: &mut Html, view: &FiguresView) {
    page.raw("<section aria-label=\"figures\"><dl class=tiles>");
    for (name, label, value) in view.tiles() {
        page.raw("<div><dt>")
            .text(label)
            .raw("</dt><dd data-figure=\"");
        page.text(name).raw("\">").text(&value).raw("</dd></div>");
    }
    page.raw("</dl><p class=quiet>Rates and latencies are of the last minute, counts since the start.</p></section>");
}

fn map_table(page: &mut Html, map: &Map) {
    page.raw("<section><h2>Map</h2><p class=quiet>generation ");
    page.text(&map.generation.to_string());
    page.raw(
        "</p><div class=scroll><table><thead><tr><th>collection<th>shard key<th>cut<th>shards",
    );
    page.raw("</thead><tbody>");
    for (collection, served) in &map.collections {
        let key: Vec<String> = served.shard_key.iter().map(ToString::to_string).collect();
        page.raw("<tr><th scope=row>").text(collection.name());
        page.raw("<br><span class=quiet>")
            .text(&served.layout)
            .raw("</span>");
        page.raw("<td><code>")
            .text(&key.join(", "))
            .raw("</code><td>");
        page.text(&cut_text(served)).raw("<td>");
        shares(page, served);
    }
    page.raw("</tbody></table></div></section>");
}

fn cut_text(served: &CollectionMap) -> String {
    let mut text = match &served.cut {
        Cut::Slots(_) => format!("{SLOT_COUNT} slots"),
        Cut::Ranges(ranges) => format!("{} ranges", ranges.len()),
    };
    if !served.pinned.is_empty() {
        text += &format!(", {} keys pinned", served.pinned.len());
    }
    if !served.frozen.is_empty() {
        text += &format!(", {} scopes frozen", served.frozen.len());
    }
    text
}

/// A bar with a piece for each shard, and the same in words.
fn shares(page: &mut Html, served: &CollectionMap) {
    let (counts, unit) = pieces(&served.cut);
    let all: u32 = counts.values().sum();
    page.raw("<div class=bar aria-hidden=true>");
    for (number, count) in counts.values().enumerate() {
        let style = format!("<i class=s{} style=\"flex-grow:{count}\"></i>", number % 6);
        page.raw(&style);
    }
    page.raw("</div><ul class=shards>");
    for (number, (shard, count)) in counts.iter().enumerate() {
        let share = f64::from(*count) * 100.0 / f64::from(all.max(1));
        page.raw(&format!("<li class=s{}>", number % 6)).text(shard);
        page.text(&format!(" {count} {unit}, {share:.1} %"));
    }
    page.raw("</ul>");
}

/// How many pieces of the cut each shard serves.
fn pieces(cut: &Cut) -> (BTreeMap<&str, u32>, &'static str) {
    let mut counts = BTreeMap::new();
    let unit = match cut {
        Cut::Slots(runs) => {
            for run in runs {
                let slots =
                    u32::from(run.slots.last.number()) + 1 - u32::from(run.slots.first.number());
                *counts.entry(run.shard.as_str()).or_default() += slots;
            }
            "slots"
        }
        Cut::Ranges(ranges) => {
            for range in ranges {
                *counts.entry(range.shard.as_str()).or_default() += 1;
            }
            "ranges"
        }
    };
    (counts, unit)
}

fn links(page: &mut Html, docs_link: Option<&str>) {
    page.raw("<nav aria-label=\"more\"><ul class=links>");
    for (path, name, note) in LINKS {
        link(page, path, name, note);
    }
    if let Some(path) = docs_link {
        link(page, path, "Documents", "how the shop works");
    }
    page.raw("</ul></nav>");
}

fn link(page: &mut Html, path: &str, name: &str, note: &str) {
    page.raw("<li><a href=\"").text(path).raw("\">").text(name);
    page.raw("</a> <span class=quiet>")
        .text(note)
        .raw("</span>");
}

#[cfg(test)]
mod tests {
    use router::ShardName;

    use super::*;

    #[test]
    fn slots_are_counted_for_each_shard() {
        let names: Vec<ShardName> = ["a", "b", "c"]
            .into_iter()
            .map(|name| ShardName::new(name).unwrap())
            .collect();
        let cut = Cut::even_slots(&names);
        let (counts, unit) = pieces(&cut);
        assert_eq!(counts.values().sum::<u32>(), u32::from(SLOT_COUNT));
        assert!(counts.values().all(|count| (1365..=1366).contains(count)));
        assert_eq!(unit, "slots");
    }
}
