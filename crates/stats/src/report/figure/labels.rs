//! Where the label of each line goes: beside the line, clear of the others.

use super::layout::{Area, Point, fit, length, text_width};

/// A line as far as its label is concerned.
pub(super) struct Labelled {
    pub(super) label: String,
    /// The size of the label's type.
    pub(super) size: f64,
    /// The corners of the line; empty if none of it is in the plot.
    pub(super) path: Vec<Point>,
}

/// A label that has its place.
pub(super) struct Label {
    pub(super) text: String,
    pub(super) area: Area,
    /// The line from the label to its own, where the two are apart.
    pub(super) leader: Option<(Point, Point)>,
}

/// Distances of a label from its line that are tried, nearest first.
const GAPS: [f64; 4] = [7.0, 18.0, 36.0, 60.0];
/// Distance of a label from its line beyond which a leader is drawn.
const NEAR: f64 = 10.0;
/// Distance of a label from another line beyond which that does not disturb.
const ROOM: f64 = 24.0;
/// Corners of a line that are closer together are as one to a label.
const STEP: f64 = 2.0;
/// Sides of the line that are tried, the best first.
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
/// Places along the line that are tried.
const STOPS: usize = 32;

/// Places a label beside each line, in order; `None` where there is no room. No label overlaps
/// another nor leaves the plot.
pub(super) fn place(lines: &[Labelled], plot: Area) -> Vec<Option<Label>> {
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

type Place = (Area, Option<(Point, Point)>);

impl Search<'_> {
    fn best(&self, path: &[Point]) -> Option<Place> {
        let mut best: Option<(f64, Place)> = None;
        for (i, anchor) in stops(path).into_iter().enumerate() {
            let off_centre = (i as f64 / STOPS as f64 - 0.5).abs() * 12.0;
            for gap in GAPS {
                for (rank, side) in SIDES.into_iter().enumerate() {
                    let area = self.beside(anchor, side, gap);
                    if !self.free(&area) {
                        continue;
                    }
                    let leader = (gap > NEAR).then(|| (area.nearest(anchor), anchor));
                    let distance = off_centre + gap + rank as f64;
                    if best.as_ref().is_some_and(|(least, _)| distance >= *least) {
                        continue;
                    }
                    let least = best.as_ref().map_or(f64::INFINITY, |(least, _)| *least);
                    let cost = distance + self.clutter(&area, leader, least - distance);
                    if cost < least {
                        best = Some((cost, (area, leader)));
                    }
                }
            }
        }
        best.map(|(_, place)| place).or_else(|| self.anywhere())
    }

    fn beside(&self, anchor: Point, side: Point, gap: f64) -> Area {
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

    /// What speaks against a place: lines through the label or its leader, and another line that
    /// is as near to it as its own. As soon as it is this much, the rest is not looked at.
    fn clutter(&self, area: &Area, leader: Option<(Point, Point)>, much: f64) -> f64 {
        let mut cost = 0.0;
        for (i, path) in self.paths.iter().enumerate() {
            if cost >= much {
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

    /// The first free place from the top right, for a line that has none or is crowded out.
    fn anywhere(&self) -> Option<Place> {
        let steps = |from: f64, to: f64| {
            (0..)
                .map(move |i| from + f64::from(i) * 6.0)
                .take_while(move |v| *v <= to)
        };
        let room = self.plot.grown(-4.0);
        let lefts: Vec<f64> = steps(0.0, room.width() - self.width).collect();
        let mut best: Option<(f64, Area)> = None;
        let places = steps(room.top, room.bottom - self.height).flat_map(|top| {
            let lefts = lefts.iter();
            lefts.map(move |left| (room.right - self.width - left, top))
        });
        for area in places.map(|(left, top)| self.at(left, top)) {
            let least = best.as_ref().map_or(f64::INFINITY, |(least, _)| *least);
            if self.free(&area) && least > 0.0 {
                let cost = self.clutter(&area, None, least);
                if cost < least {
                    best = Some((cost, area));
                }
            }
        }
        best.map(|(_, area)| (area, None))
    }
}

/// The path without corners that lie closer to the one before than it matters: curves have thousands of
/// them, and each is looked at for each place of each label.
fn coarse(path: &[Point]) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for (place, point) in path.iter().enumerate() {
        let is_last = place + 1 == path.len();
        if is_last || kept.last().is_none_or(|last| length(*last, *point) >= STEP) {
            kept.push(*point);
        }
    }
    kept
}

/// How far the path passes from the area, at most [`ROOM`].
fn distance(area: &Area, path: &[Point]) -> f64 {
    let around = area.grown(ROOM);
    path.windows(2)
        .map(|pair| (pair[0], pair[1]))
        .filter(|(a, b)| around.overlaps(&Area::around(*a, *b)))
        .map(|(a, b)| area.distance(a, b))
        .fold(ROOM, f64::min)
}

/// Points at equal distances along the path, its ends left out.
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
