// Draws the page, part by part; a part that fails says so and leaves the others alone.
"use strict";
for (const [id, part] of [["eyebrow", drawHeader], ["percentiles", drawPercentiles], ["legs", drawLegs], ["slowest", drawSlowest], ["causes", drawCauses], ["typical", drawTypical], ["groups", drawGroups], ["requests", drawRequests], ["balloon", drawBalloon], ["cdf", drawDistribution], ["timelines", drawTimelines], ["pervasive", drawPervasive], ["queue", drawQueue], ["cores", drawCores], ["record", drawRecord]]) {
  try { part(); } catch (error) { byId(id).append(el("p", { class: "note" }, "This part could not be drawn: " + error.message)); console.error(error); }
}
charts.forEach((c) => c.redraw());
document.documentElement.dataset.drawn = "yes";
