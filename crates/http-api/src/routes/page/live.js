// Brings the figures up to date; without it the page shows those of its loading.
const written = {
  latency_p50_ms: (ms) => ms === null ? "–" : ms.toFixed(2) + " ms",
  latency_p99_ms: (ms) => ms === null ? "–" : ms.toFixed(2) + " ms",
  requests_per_s: (rate) => rate.toFixed(0),
};
async function refresh() {
  try {
    const figures = await (await fetch("/figures.json", {cache: "no-store"})).json();
    for (const place of document.querySelectorAll("[data-figure]")) {
      const name = place.dataset.figure;
      place.textContent = (written[name] ?? String)(figures[name]);
    }
  } catch { /* the shop is away for a moment: the next round tries again */ }
}
setInterval(() => document.hidden || refresh(), 2000);
