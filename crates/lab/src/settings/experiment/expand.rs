//! From one file to many runs: variants, axes, parameters, the grid, and seeds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, Value, merge, table, wrong};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Name;
use super::expression::PARAMETERS;
use super::read::embed_tables;
use super::values::MOST_CHARACTERS;
use crate::measure_ref::nearest;
use crate::settings::numbers::REPETITIONS;
use crate::settings::traffic;
use crate::{Part, RunKey};

/// One run, with the values that it has for itself.
pub(super) struct Expanded<'i> {
    pub(super) name: RunKey,
    pub(super) document: DeTable<'i>,
}

/// More are a mistake.
const MOST_RUNS: usize = 100_000;

/// The keys that expansion takes out of a file.
const OWN_KEYS: [&str; 4] = ["variant", "axis", "grid", "repetitions"];

/// What a run differs in, and its parts of the name.
type Choice<'i> = (Option<String>, DeTable<'i>);

/// All runs: variant by variant, then through axes, parameters and the grid, the last of them
/// fastest, then by seed.
pub(super) fn expand<'i>(
    document: &DeTable<'i>,
    seeds: &DeTable<'i>,
    folder: &Path,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Expanded<'i>> {
    let mut base = document.clone();
    for key in OWN_KEYS {
        base.remove(key);
    }
    let mut dimensions = Vec::new();
    if let Some(variants) = document.get("variant") {
        dimensions.push(read_variants(variants, "", mistakes));
    }
    if let Some(axes) = document.get("axis") {
        dimensions.extend(read_axes(axes, mistakes));
    }
    if let Some(parameters) = document.get(PARAMETERS) {
        dimensions.extend(read_parameters(parameters, mistakes));
    }
    let grid = document.get("grid");
    if let Some(grid) = grid.and_then(|value| table(value, mistakes)) {
        dimensions.extend(read_grid(grid, mistakes));
    }
    refuse_seeds(&dimensions, mistakes);
    refuse_overruled(&dimensions, mistakes);
    refuse_unknown_groups(&base, &dimensions, mistakes);
    dimensions.extend(read_grid(seeds, mistakes));
    refuse_equal_names(&dimensions, mistakes);
    refuse_long_names(&dimensions, mistakes);
    let count = dimensions.iter().map(Vec::len);
    let count = count.fold(1, usize::saturating_mul);
    if count > MOST_RUNS {
        let text = format!("{count} runs; {MOST_RUNS} are the most, so split the experiment");
        let span = document.get("grid").map_or(0..1, Spanned::span);
        mistakes.push(Mistake::new(span, text));
        return Vec::new();
    }
    embed_tables(&mut base, folder, mistakes);
    for (_, over) in dimensions.iter_mut().flatten() {
        embed_tables(over, folder, mistakes);
    }
    combinations(&dimensions)
        .map(|choices| {
            let mut run = base.clone();
            let mut name = Vec::new();
            for (part, over) in choices {
                merge(&mut run, over);
                name.extend(part.as_deref());
            }
            Expanded {
                name: RunKey::from(name.join(",").as_str()),
                document: run,
            }
        })
        .collect()
}

/// The seeds are told apart from all that is varied.
fn refuse_seeds(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for (name, over) in dimensions.iter().flatten() {
        let value = over.get("seed").or_else(|| over.get("repetitions"));
        let is_called_so = name.as_deref().is_some_and(|it| Part::from(it).is_seed());
        if value.is_some() || is_called_so {
            let text = "seeds are no choice of their own: `seed` is the first, and `repetitions` how \
                        many there are, both of the whole file; call a parameter otherwise";
            let span = value.or_else(|| over.values().next()).map(Spanned::span);
            mistakes.push(Mistake::new(span.unwrap_or(0..1), text.to_owned()));
            return;
        }
    }
}

/// A group that only choices name, and of which none says what its streams are, is a slip of the pen.
fn refuse_unknown_groups(base: &DeTable, dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    let groups_of = |of: &DeTable| -> Vec<(String, Range<usize>, Vec<String>)> {
        let groups = of.get("group").and_then(|it| it.get_ref().as_table());
        let groups = groups.into_iter().flatten();
        let keys = |value: &Value| match value.get_ref().as_table() {
            Some(group) => group.keys().map(|key| key.get_ref().to_string()).collect(),
            None => Vec::new(),
        };
        let groups =
            groups.map(|(name, value)| (name.get_ref().to_string(), name.span(), keys(value)));
        groups.collect()
    };
    let own: Vec<String> = groups_of(base).into_iter().map(|(name, ..)| name).collect();
    let Some(first) = own.first() else {
        return;
    };
    let of_streams = keys::<traffic::Group>();
    let chosen = dimensions.iter().flatten();
    let chosen: Vec<_> = chosen.flat_map(|(_, over)| groups_of(over)).collect();
    let is_described = |name: &str| {
        let mut of_name = chosen.iter().filter(|(it, ..)| it == name);
        of_name.any(|(_, _, keys)| keys.iter().any(|key| of_streams.contains(key)))
    };
    for (name, span, _) in &chosen {
        if !own.contains(name) && !is_described(name) {
            let nearest = nearest(name, own.iter()).unwrap_or(first);
            let text = format!(
                "unknown group `{name}`; the nearest is `{nearest}`; a new one says what its streams are, \
                 as in `streams = 1`"
            );
            mistakes.push(Mistake::new(span.clone(), text));
        }
    }
}

/// What a later choice replaces in every run has no effect.
fn refuse_overruled(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for (place, choices) in dimensions.iter().enumerate() {
        let later = dimensions.iter().skip(place + 1);
        for leaf in choices.iter().flat_map(|(_, over)| Leaf::all_of(over)) {
            let replaces = |(_, over): &Choice| leaf.is_replaced_by(over);
            let replace = |choices: &Vec<Choice>| choices.iter().all(replaces);
            if later.clone().any(|it| !it.is_empty() && replace(it)) {
                let text = format!(
                    "`{}` is varied again behind this, so that this has no effect; keep one of them",
                    leaf.key()
                );
                mistakes.push(Mistake::new(leaf.span, text));
            }
        }
    }
}

/// Runs are told apart by their names, which are those of their choices.
fn refuse_equal_names(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for choices in dimensions {
        let mut known = BTreeMap::new();
        for (place, (name, value)) in choices.iter().enumerate() {
            let first = *known.entry(name).or_insert(place);
            if first != place {
                let text = format!(
                    "the values {} and {} would both be called `{}` in names of runs; give each value \
                     once, or a name of its own, as in [axis.loss.bursts]",
                    first + 1,
                    place + 1,
                    name.as_deref().unwrap_or_default(),
                );
                let value = value.values().next();
                mistakes.push(Mistake::new(value.map_or(0..1, Spanned::span), text));
            }
        }
    }
}

/// Files are called by runs.
fn refuse_long_names(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    // With the comma before the next.
    let length = |choice: &Choice| choice.0.as_deref().map_or(0, |name| name.len() + 1);
    let longest = dimensions
        .iter()
        .filter_map(|choices| choices.iter().max_by_key(|choice| length(choice)));
    let total = longest.clone().map(length).sum::<usize>().saturating_sub(1);
    if total <= MOST_CHARACTERS {
        return;
    }
    let text = format!(
        "names of runs would have {total} characters, for which files have no room; give long \
         values a name of their own, as in [axis.loss.bursts]"
    );
    let of_longest = longest.max_by_key(|choice| length(choice));
    let value = of_longest.and_then(|(_, over)| over.values().next());
    mistakes.push(Mistake::new(value.map_or(0..1, Spanned::span), text));
}

/// All combinations of one choice of each dimension, the last dimension fastest.
fn combinations<T>(dimensions: &[Vec<T>]) -> impl Iterator<Item = Vec<&T>> {
    let count: usize = dimensions.iter().map(Vec::len).product();
    (0..count).map(move |mut number| {
        let mut choice: Vec<&T> = Vec::with_capacity(dimensions.len());
        for dimension in dimensions.iter().rev() {
            choice.push(&dimension[number % dimension.len()]);
            number /= dimension.len();
        }
        choice.reverse();
        choice
    })
}

/// Tables of keys that runs set otherwise; each run's name has that of its table, after `prefix`.
fn read_variants<'i>(
    value: &Value<'i>,
    prefix: &str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Choice<'i>> {
    let DeValue::Table(variants) = value.get_ref() else {
        let text = "no table; begin each variant with [variant.NAME]";
        mistakes.push(Mistake::new(value.span(), text));
        return Vec::new();
    };
    if variants.is_empty() {
        let begin = match prefix.strip_suffix('=') {
            Some(axis) => format!("axis.{axis}"),
            None => "variant".to_owned(),
        };
        let text = format!("no variant; begin each with [{begin}.NAME], or leave the key out");
        mistakes.push(Mistake::new(value.span(), text));
    }
    let tables = in_order(variants).into_iter().filter_map(|(key, value)| {
        let name: Name = document::read_key(key, mistakes)?;
        let table = table(value, mistakes)?;
        Some((Some(format!("{prefix}{name}")), table.clone()))
    });
    tables.collect()
}

/// Variants in more than one respect.
fn read_axes<'i>(value: &Value<'i>, mistakes: &mut Vec<Mistake>) -> Vec<Vec<Choice<'i>>> {
    let Some(axes) = table(value, mistakes) else {
        return Vec::new();
    };
    let axes = in_order(axes).into_iter().filter_map(|(key, value)| {
        let name: Name = document::read_key(key, mistakes)?;
        table(value, mistakes)?;
        Some(read_variants(value, &format!("{name}="), mistakes))
    });
    axes.collect()
}

/// Parameters that have a list of numbers; those of one number stay with the document.
fn read_parameters<'i>(value: &Value<'i>, mistakes: &mut Vec<Mistake>) -> Vec<Vec<Choice<'i>>> {
    let Some(parameters) = table(value, mistakes) else {
        return Vec::new();
    };
    let own_key = Spanned::new(value.span(), PARAMETERS.into());
    let lists = in_order(parameters).into_iter().filter_map(|(key, value)| {
        let values = value.get_ref().as_array()?;
        if values.is_empty() {
            mistakes.push(wrong(value, "a list of numbers, as in [1, 2, 4]"));
        }
        let list = List {
            keys: vec![&own_key, key],
            values: value,
        };
        Some(list.choices(list.last()))
    });
    lists.collect()
}

type Entry<'a, 'i> = (&'a Spanned<Cow<'i, str>>, &'a Value<'i>);

/// A table's entries in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The grid's lists, in the order of the file.
fn read_grid<'i>(grid: &DeTable<'i>, mistakes: &mut Vec<Mistake>) -> Vec<Vec<Choice<'i>>> {
    let mut lists = Vec::new();
    collect(grid, &mut Vec::new(), &mut lists, mistakes);
    lists.sort_by_key(|list| list.values.span().start);
    let is_alone = |list: &List| {
        let same = lists.iter().filter(|other| other.last() == list.last());
        same.count() == 1
    };
    let dimensions = lists.iter().map(|list| {
        let called = match is_alone(list) {
            true => list.last().to_owned(),
            false => list.path(),
        };
        list.choices(&called)
    });
    dimensions.collect()
}

/// A key that is varied: where it stands in the file, and its values.
struct List<'a, 'i> {
    keys: Vec<&'a Spanned<Cow<'i, str>>>,
    values: &'a Value<'i>,
}

impl<'i> List<'_, 'i> {
    fn last(&self) -> &str {
        self.keys.last().map_or("", |key| key.get_ref())
    }

    fn path(&self) -> String {
        let keys: Vec<&str> = self.keys.iter().map(|key| &**key.get_ref()).collect();
        keys.join(".")
    }

    /// One choice for each value, by that name.
    fn choices(&self, called: &str) -> Vec<Choice<'i>> {
        let DeValue::Array(values) = self.values.get_ref() else {
            return Vec::new();
        };
        let choices = values.iter().enumerate().map(|(index, value)| {
            let part = format!("{called}={}", word(value, index));
            (Some(part), self.table_with(value.clone()))
        });
        choices.collect()
    }

    /// The tables that lead to the key, with one of its values.
    fn table_with(&self, value: Value<'i>) -> DeTable<'i> {
        let mut inner = value;
        for key in self.keys.iter().skip(1).rev() {
            let mut table = DeTable::new();
            let span = inner.span();
            table.insert((*key).clone(), inner);
            inner = Spanned::new(span, DeValue::Table(table));
        }
        let mut table = DeTable::new();
        if let Some(first) = self.keys.first() {
            table.insert((*first).clone(), inner);
        }
        table
    }
}

fn collect<'a, 'i>(
    table: &'a DeTable<'i>,
    path: &mut Vec<&'a Spanned<Cow<'i, str>>>,
    lists: &mut Vec<List<'a, 'i>>,
    mistakes: &mut Vec<Mistake>,
) {
    for (key, value) in table {
        path.push(key);
        match value.get_ref() {
            DeValue::Table(table) => collect(table, path, lists, mistakes),
            DeValue::Array(values) if !values.is_empty() => lists.push(List {
                keys: path.clone(),
                values: value,
            }),
            _ => mistakes.push(wrong(value, "a list of values, as in [0.5, 2, 5]")),
        }
        path.pop();
    }
}

/// A value in a run's name; those of several words go by their number.
fn word(value: &Value, index: usize) -> String {
    match value.get_ref() {
        DeValue::String(text) => text
            .chars()
            .map(|c| match c {
                c if c.is_ascii_alphanumeric() || "-_.:+%".contains(c) => c,
                _ => '_',
            })
            .collect(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(switch) => switch.to_string(),
        _ => format!("{}", index + 1),
    }
}

/// The seeds as one more parameter of a grid: as many as repetitions, counted up from the file's.
pub(super) fn seeds(file: &DeTable, mistakes: &mut Vec<Mistake>) -> String {
    let first = file.get("seed");
    let first: Option<u32> = first.map_or(Some(1), |value| document::read(value, mistakes));
    let repetitions = file.get("repetitions");
    let repetitions = repetitions.map(|value| {
        let number: Option<u32> = document::read(value, &mut Vec::new());
        let number = number.filter(|number| REPETITIONS.contains(number));
        if number.is_none() {
            mistakes.push(wrong(value, "a number from 1 to 10000"));
        }
        number.unwrap_or(1)
    });
    let (first, repetitions) = (first.unwrap_or(1), repetitions.unwrap_or(1));
    let last = first.checked_add(repetitions - 1).unwrap_or_else(|| {
        let span = file.get("seed").map_or(0..1, Spanned::span);
        let text = format!(
            "the last seed would be above {}; begin with a lower one",
            u32::MAX
        );
        mistakes.push(Mistake::new(span, text));
        first
    });
    let seeds = first..=last;
    format!("seed = {:?}", seeds.collect::<Vec<_>>())
}

// Values that a later choice replaces in every run.

/// A key within a file's tables, and where its value stands.
pub(super) struct Leaf {
    path: Vec<String>,
    pub(super) span: Range<usize>,
}

impl Leaf {
    /// All values that are no tables.
    pub(super) fn all_of(table: &DeTable) -> Vec<Self> {
        let mut all = Vec::new();
        collect_leaves(table, &mut Vec::new(), &mut all);
        all
    }

    pub(super) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Whether a table that is merged behind it puts something in its place.
    pub(super) fn is_replaced_by(&self, table: &DeTable) -> bool {
        let mut table = table;
        for (place, key) in self.path.iter().enumerate() {
            match table.get(key.as_str()).map(Spanned::get_ref) {
                None => return false,
                Some(DeValue::Table(inner)) if place + 1 < self.path.len() => table = inner,
                Some(_) => return true,
            }
        }
        false
    }
}

fn collect_leaves(table: &DeTable, path: &mut Vec<String>, all: &mut Vec<Leaf>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => collect_leaves(inner, path, all),
            _ => all.push(Leaf {
                path: path.clone(),
                span: value.span(),
            }),
        }
        path.pop();
    }
}
