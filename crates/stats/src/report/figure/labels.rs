//! Places the label of each line next to it, without overlap.

use super::layout::{Area, Point, fit, length, text_width};

/// Data of a line that its label needs.
pub(super) struct LabelledLine {
    pub(super) label: String,
    /// Font size of the label.
    pub(super) size: f64,
    /// The corners of the line; empty if the line is outside the plot.
    pub(super) path: Vec<Point>,
}

/// A placed label.
pub(super) struct Label {
    pub(super) text: String,
    pub(super) area: Area,
    /// Connection from the label to its line, if they are apart.
    pub(super) leader: Option<(Point, Point)>,
}

/// Candidate distances of a label from its line, nearest first.
const GAPS: [f64; 4] = [7.0, 18.0, 36.0, 60.0];
/// Beyond this distance from its line, a label gets a leader.
const NEAR: f64 = 10.0;
/// Beyond this distance from a label, another line does not disturb.
const ROOM: f64 = 24.0;
/// Corners closer than this are merged for the search.
const STEP: f64 = 2.0;
/// Candidate sides of the line, best first.
const SIDES: [Point; 8] = [
    (1.0, -1.0),
    (1.0, 0.0),
    (1.0, 1.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (-1.0, -1.0),
    (-1.0, 0.0),
    (-1.0, 1.0),
];
/// Number of candidate positions along the line.
const STOPS: usize = 32;

/// Places a label next to each line, in order; `None` if there is no space. No label overlaps
/// another or leaves the plot.
pub(super) fn place_all(lines: &[LabelledLine], plot: Area) -> Vec<Option<Label>> {
    let mut placed: Vec<Option<Label>> = Vec::new();
    let paths: Vec<Vec<Point>> = lines.iter().map(|line| coarse(&line.path)).collect();
    for (own, line) in lines.iter().enumerate() {
        let size = line.size;
        let text = fit(&line.label, size, plot.width() * 0.7);
        let label = Search {
            width: text_width(&text, size),
            height: size * 1.25,
            paths: &paths,
            own,
            plot,
            placed: &placed,
        }
        .best(&paths[own]);
        let label = label.filter(|_| !text.is_empty());
        placed.push(label.map(|(area, leader)| Label { text, area, leader }));
    }
    placed
}

struct Search<'a> {
    width: f64,
    height: f64,
    paths: &'a [Vec<Point>],
    own: usize,
    plot: Area,
    placed: &'a [Option<Label>],
}

type Placement = (Area, Option<(Point, Point)>);

impl Search<'_> {
    fn best(&self, path: &[Point]) -> Option<Placement> {
        let mut best: Option<(f64, Placement)> = None;
        for (i, anchor) in stops(path).into_iter().enumerate() {
            let off_centre = (i as f64 / STOPS as f64 - 0.5).abs() * 12.0;
            for gap in GAPS {
                for (rank, side) in SIDES.into_iter().enumerate() {
                    let area = self.area_next_to(anchor, side, gap);
                    if !self.free(&area) {
                        continue;
                    }
                    let leader = (gap > NEAR).then(|| (area.nearest(anchor), anchor));
                    let distance = off_centre + gap + rank as f64;
                    if best
                        .as_ref()
                        .is_some_and(|(lowest_cost, _)| distance >= *lowest_cost)
                    {
                        continue;
                    }
                    let lowest_cost = best
                        .as_ref()
                        .map_or(f64::INFINITY, |(lowest_cost, _)| *lowest_cost);
                    let cost = distance + self.clutter(&area, leader, lowest_cost - distance);
                    if cost < lowest_cost {
                        best = Some((cost, (area, leader)));
                    }
                }
            }
        }
        best.map(|(_, placement)| placement)
            .or_else(|| self.first_free())
    }

    fn area_next_to(&self, anchor: Point, side: Point, gap: f64) -> Area {
        let reach = gap / side.0.hypot(side.1);
        let left = anchor.0 + side.0 * reach + (side.0 - 1.0) / 2.0 * self.width;
        let top = anchor.1 + side.1 * reach + (side.1 - 1.0) / 2.0 * self.height;
        self.at(left, top)
    }

    fn at(&self, left: f64, top: f64) -> Area {
        Area {
            left,
            top,
            right: left + self.width,
            bottom: top + self.height,
        }
    }

    fn free(&self, area: &Area) -> bool {
        let room = area.grown(3.0);
        let taken = |label: &Label| label.area.overlaps(&room);
        self.plot.grown(-2.0).holds(area) && !self.placed.iter().flatten().any(taken)
    }

    /// The cost of a candidate: lines through the label or its leader, and other lines that are as
    /// near as its own. The computation stops at `limit`.
    fn clutter(&self, area: &Area, leader: Option<(Point, Point)>, limit: f64) -> f64 {
        let mut cost = 0.0;
        for (i, path) in self.paths.iter().enumerate() {
            if cost >= limit {
                return cost;
            }
            let near = distance(area, path);
            cost += match (i == self.own, near) {
                (true, n) if n < 1.0 => 120.0,
                (true, n) => (6.0 - n).max(0.0) * 4.0,
                (false, n) if n < 1.0 => 240.0,
                (false, n) => (ROOM - n) * 3.0,
            };
            if let Some((from, to)) = leader
                && i != self.own
            {
                let between = Area::around(from, to);
                cost += if distance(&between, path) < 2.0 {
                    150.0
                } else {
                    0.0
                };
            }
        }
        cost
    }

    /// The first free area from the top right, for a line that is outside or crowded out.
    fn first_free(&self) -> Option<Placement> {
        let steps = |from: f64, to: f64| {
            (0..)
                .map(move |i| from + f64::from(i) * 6.0)
                .take_while(move |v| *v <= to)
        };
        let room = self.plot.grown(-4.0);
        let lefts: Vec<f64> = steps(0.0, room.width() - self.width).collect();
        let mut best: Option<(f64, Area)> = None;
        let candidates = steps(room.top, room.bottom - self.height).flat_map(|top| {
            let lefts = lefts.iter();
            lefts.map(move |left| (room.right - self.width - left, top))
        });
        for area in candidates.map(|(left, top)| self.at(left, top)) {
            let lowest_cost = best
                .as_ref()
                .map_or(f64::INFINITY, |(lowest_cost, _)| *lowest_cost);
            if self.free(&area) && lowest_cost > 0.0 {
                let cost = self.clutter(&area, None, lowest_cost);
                if cost < lowest_cost {
                    best = Some((cost, area));
                }
            }
        }
        best.map(|(_, area)| (area, None))
    }
}

/// Drops corners too close to the previous one. Curves have thousands of corners, and each is
/// checked for each candidate.
fn coarse(path: &[Point]) -> Vec<Point> {
    let mut coarse_path: Vec<Point> = Vec::new();
    for (index, point) in path.iter().enumerate() {
        let is_last = index + 1 == path.len();
        if is_last
            || coarse_path
                .last()
                .is_none_or(|last| length(*last, *point) >= STEP)
        {
            coarse_path.push(*point);
        }
    }
    coarse_path
}

/// Distance between path and area, at most [`ROOM`].
fn distance(area: &Area, path: &[Point]) -> f64 {
    let around = area.grown(ROOM);
    path.windows(2)
        .map(|pair| (pair[0], pair[1]))
        .filter(|(a, b)| around.overlaps(&Area::around(*a, *b)))
        .map(|(a, b)| area.distance(a, b))
        .fold(ROOM, f64::min)
}

/// Points at equal distances along the path, without its ends.
fn stops(path: &[Point]) -> Vec<Point> {
    let total: f64 = path.windows(2).map(|p| length(p[0], p[1])).sum();
    let mut stops = Vec::with_capacity(STOPS);
    let mut passed = 0.0;
    for pair in path.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let here = length(a, b);
        while stops.len() < STOPS {
            let along = (stops.len() as f64 + 0.5) / STOPS as f64 * total - passed;
            if along > here {
                break;
            }
            let t = along / here.max(f64::MIN_POSITIVE);
            stops.push((a.0 + (b.0 - a.0) * t, a.1 + (b.1 - a.1) * t));
        }
        passed += here;
    }
    stops
}
