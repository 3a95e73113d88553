//! Expands one file to many runs: variants, axes, parameters, the grid, and seeds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::document::known::keys;
use pillion_cli::settings::document::{self, Mistake, Value, merge, table, type_mismatch};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Name;
use super::expression::PARAMETERS;
use super::values::MAX_NAME_LENGTH;
use crate::measure_ref::nearest;
use crate::path::LinkTrace;
use crate::settings::numbers::REPETITIONS;
use crate::settings::time_text::table_text;
use crate::settings::traffic;
use crate::settings::traffic::Writes;
use crate::traffic::Table;
use crate::{Part, RunKey};

/// One run: its name, and its document with all choices merged.
pub(super) struct ExpandedRun<'i> {
    pub(super) name: RunKey,
    pub(super) document: DeTable<'i>,
}

/// Maximum runs of an experiment.
const MAX_RUNS: usize = 100_000;

/// Keys that the expansion removes from the document.
const OWN_KEYS: [&str; 4] = ["variant", "axis", "grid", "repetitions"];

/// Part of a run's name, and the keys that it sets.
type Choice<'i> = (Option<String>, DeTable<'i>);

/// Returns all runs: variant by variant, then axes, parameters and the grid, then seeds. The last
/// dimension varies fastest.
pub(super) fn expand<'i>(
    document: &DeTable<'i>,
    seeds: &DeTable<'i>,
    folder: &Path,
    mistakes: &mut Vec<Mistake>,
) -> Vec<ExpandedRun<'i>> {
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
    check_seeds(&dimensions, mistakes);
    check_overridden(&dimensions, mistakes);
    check_group_names(&base, &dimensions, mistakes);
    dimensions.extend(read_grid(seeds, mistakes));
    check_equal_names(&dimensions, mistakes);
    check_long_names(&dimensions, mistakes);
    let count = dimensions.iter().map(Vec::len);
    let count = count.fold(1, usize::saturating_mul);
    if count > MAX_RUNS {
        let text = format!("{count} runs: the maximum is {MAX_RUNS}; split the experiment");
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
            remove_disabled_bundles(&mut run);
            ExpandedRun {
                name: RunKey::from(name.join(",").as_str()),
                document: run,
            }
        })
        .collect()
}

/// Replaces `bundle = { enabled = false, ... }` of groups by `false`, and removes `enabled = true`.
/// So an axis can set options of bundling for the variants that bundle.
fn remove_disabled_bundles(run: &mut DeTable) {
    let groups = run.get_mut("group").map(Spanned::get_mut);
    let Some(DeValue::Table(groups)) = groups else {
        return;
    };
    for (_, group) in groups.iter_mut() {
        let DeValue::Table(group) = group.get_mut() else {
            continue;
        };
        let Some(bundle) = group.get_mut("bundle").map(Spanned::get_mut) else {
            continue;
        };
        let DeValue::Table(options) = bundle else {
            continue;
        };
        match options.get("enabled").map(Spanned::get_ref) {
            Some(DeValue::Boolean(true)) => drop(options.remove("enabled")),
            Some(DeValue::Boolean(false)) => *bundle = DeValue::Boolean(false),
            _ => (),
        }
    }
}

/// Reports variations of the seed: only `seed` and `repetitions` at the top level set it.
fn check_seeds(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for (name, over) in dimensions.iter().flatten() {
        let value = over.get("seed").or_else(|| over.get("repetitions"));
        let is_named_seed = name.as_deref().is_some_and(|it| Part::from(it).is_seed());
        if value.is_some() || is_named_seed {
            let text = "seeds cannot be varied here; set `seed` (the first one) and `repetitions` at the \
                        top level, or rename the parameter";
            let span = value.or_else(|| over.values().next()).map(Spanned::span);
            mistakes.push(Mistake::new(span.unwrap_or(0..1), text.to_owned()));
            return;
        }
    }
}

/// Reports groups that only variations name, unless one of them describes their streams: probably a
/// typing error.
fn check_group_names(base: &DeTable, dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
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
                "unknown group `{name}`; the nearest is `{nearest}`; a new group needs keys of its \
                 streams, as in `streams = 1`"
            );
            mistakes.push(Mistake::new(span.clone(), text));
        }
    }
}

/// Reports values that a later variation replaces in every run.
fn check_overridden(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for (index, choices) in dimensions.iter().enumerate() {
        let later = dimensions.iter().skip(index + 1);
        for leaf in choices.iter().flat_map(|(_, over)| Leaf::all_of(over)) {
            let replaces = |(_, over): &Choice| leaf.is_replaced_by(over);
            let replace = |choices: &Vec<Choice>| choices.iter().all(replaces);
            if later.clone().any(|it| !it.is_empty() && replace(it)) {
                let text = format!(
                    "`{}` is overridden by a later variation in every run; remove one of them",
                    leaf.key()
                );
                mistakes.push(Mistake::new(leaf.span, text));
            }
        }
    }
}

/// Reports values that would give two runs the same name.
fn check_equal_names(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    for choices in dimensions {
        let mut known = BTreeMap::new();
        for (index, (name, value)) in choices.iter().enumerate() {
            let first = *known.entry(name).or_insert(index);
            if first != index {
                let text = format!(
                    "the values {} and {} are both named `{}` in run names; remove duplicates, or \
                     name the values, as in [axis.loss.bursts]",
                    first + 1,
                    index + 1,
                    name.as_deref().unwrap_or_default(),
                );
                let value = value.values().next();
                mistakes.push(Mistake::new(value.map_or(0..1, Spanned::span), text));
            }
        }
    }
}

/// Reports names that are too long for file names.
fn check_long_names(dimensions: &[Vec<Choice>], mistakes: &mut Vec<Mistake>) {
    // Including the comma.
    let length = |choice: &Choice| choice.0.as_deref().map_or(0, |name| name.len() + 1);
    let longest = dimensions
        .iter()
        .filter_map(|choices| choices.iter().max_by_key(|choice| length(choice)));
    let total = longest.clone().map(length).sum::<usize>().saturating_sub(1);
    if total <= MAX_NAME_LENGTH {
        return;
    }
    let text = format!(
        "run names of {total} characters are too long for file names; name long values, as in \
         [axis.loss.bursts]"
    );
    let longest_choice = longest.max_by_key(|choice| length(choice));
    let value = longest_choice.and_then(|(_, over)| over.values().next());
    mistakes.push(Mistake::new(value.map_or(0..1, Spanned::span), text));
}

/// Returns all combinations of one choice per dimension; the last dimension varies fastest.
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

/// Reads tables of keys that runs set. Names of runs get `prefix` and the table's name.
fn read_variants<'i>(
    value: &Value<'i>,
    prefix: &str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Choice<'i>> {
    let DeValue::Table(variants) = value.get_ref() else {
        let text = "expected a table; start each variant with [variant.NAME]";
        mistakes.push(Mistake::new(value.span(), text));
        return Vec::new();
    };
    if variants.is_empty() {
        let start = match prefix.strip_suffix('=') {
            Some(axis) => format!("axis.{axis}"),
            None => "variant".to_owned(),
        };
        let text = format!("no variants; start each with [{start}.NAME], or remove the key");
        mistakes.push(Mistake::new(value.span(), text));
    }
    let tables = in_order(variants).into_iter().filter_map(|(key, value)| {
        let name: Name = document::read_key(key, mistakes)?;
        let table = table(value, mistakes)?;
        Some((Some(format!("{prefix}{name}")), table.clone()))
    });
    tables.collect()
}

/// Reads `[axis]`: one dimension per axis.
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

/// Reads lists of parameters. Constants remain in the document.
fn read_parameters<'i>(value: &Value<'i>, mistakes: &mut Vec<Mistake>) -> Vec<Vec<Choice<'i>>> {
    let Some(parameters) = table(value, mistakes) else {
        return Vec::new();
    };
    let own_key = Spanned::new(value.span(), PARAMETERS.into());
    let lists = in_order(parameters).into_iter().filter_map(|(key, value)| {
        let values = value.get_ref().as_array()?;
        if values.is_empty() {
            mistakes.push(type_mismatch(value, "a list of numbers, as in [1, 2, 4]"));
        }
        let list = VariedKey {
            keys: vec![&own_key, key],
            values: value,
        };
        Some(list.choices(list.last()))
    });
    lists.collect()
}

type Entry<'a, 'i> = (&'a Spanned<Cow<'i, str>>, &'a Value<'i>);

/// Returns a table's entries in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Reads the grid's lists in the order of the file.
fn read_grid<'i>(grid: &DeTable<'i>, mistakes: &mut Vec<Mistake>) -> Vec<Vec<Choice<'i>>> {
    let mut lists = Vec::new();
    collect(grid, &mut Vec::new(), &mut lists, mistakes);
    lists.sort_by_key(|list| list.values.span().start);
    let is_unique = |list: &VariedKey| {
        let same = lists.iter().filter(|other| other.last() == list.last());
        same.count() == 1
    };
    let dimensions = lists.iter().map(|list| {
        let name = match is_unique(list) {
            true => list.last().to_owned(),
            false => list.path(),
        };
        list.choices(&name)
    });
    dimensions.collect()
}

/// Varied key with its values.
struct VariedKey<'a, 'i> {
    keys: Vec<&'a Spanned<Cow<'i, str>>>,
    values: &'a Value<'i>,
}

impl<'i> VariedKey<'_, 'i> {
    fn last(&self) -> &str {
        self.keys.last().map_or("", |key| key.get_ref())
    }

    fn path(&self) -> String {
        let keys: Vec<&str> = self.keys.iter().map(|key| &**key.get_ref()).collect();
        keys.join(".")
    }

    /// Returns one choice per value, named after `name`.
    fn choices(&self, name: &str) -> Vec<Choice<'i>> {
        let DeValue::Array(values) = self.values.get_ref() else {
            return Vec::new();
        };
        let choices = values.iter().enumerate().map(|(index, value)| {
            let part = format!("{name}={}", name_part(value, index));
            (Some(part), self.table_with(value.clone()))
        });
        choices.collect()
    }

    /// Wraps one value in the tables that lead to the key.
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
    lists: &mut Vec<VariedKey<'a, 'i>>,
    mistakes: &mut Vec<Mistake>,
) {
    for (key, value) in table {
        path.push(key);
        match value.get_ref() {
            DeValue::Table(table) => collect(table, path, lists, mistakes),
            DeValue::Array(values) if !values.is_empty() => lists.push(VariedKey {
                keys: path.clone(),
                values: value,
            }),
            _ => mistakes.push(type_mismatch(value, "a list of values, as in [0.5, 2, 5]")),
        }
        path.pop();
    }
}

/// Returns a value's text in names of runs. Lists and tables are numbered from 1.
fn name_part(value: &Value, index: usize) -> String {
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

/// Returns the seeds as one more line of the grid: `repetitions` seeds, counted up from `seed`.
pub(super) fn seeds(file: &DeTable, mistakes: &mut Vec<Mistake>) -> String {
    let first = file.get("seed");
    let first: Option<u32> = first.map_or(Some(1), |value| document::read(value, mistakes));
    let repetitions = file.get("repetitions");
    let repetitions = repetitions.map(|value| {
        let number: Option<u32> = document::read(value, &mut Vec::new());
        let number = number.filter(|number| REPETITIONS.contains(number));
        if number.is_none() {
            mistakes.push(type_mismatch(value, "a number from 1 to 10000"));
        }
        number.unwrap_or(1)
    });
    let (first, repetitions) = (first.unwrap_or(1), repetitions.unwrap_or(1));
    let last = first.checked_add(repetitions - 1).unwrap_or_else(|| {
        let span = file.get("seed").map_or(0..1, Spanned::span);
        let text = format!("the last seed is above {}; set a lower `seed`", u32::MAX);
        mistakes.push(Mistake::new(span, text));
        first
    });
    let seeds = first..=last;
    format!("seed = {:?}", seeds.collect::<Vec<_>>())
}

// Values that a later choice replaces.

/// Path of a key within the tables, and the span of its value.
pub(super) struct Leaf {
    path: Vec<String>,
    pub(super) span: Range<usize>,
}

impl Leaf {
    /// Returns all values except tables.
    pub(super) fn all_of(table: &DeTable) -> Vec<Self> {
        let mut all = Vec::new();
        collect_leaves(table, &mut Vec::new(), &mut all);
        all
    }

    pub(super) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Returns whether merging `table` over this value replaces it.
    pub(super) fn is_replaced_by(&self, table: &DeTable) -> bool {
        let mut table = table;
        for (index, key) in self.path.iter().enumerate() {
            match table.get(key.as_str()).map(Spanned::get_ref) {
                None => return false,
                Some(DeValue::Table(inner)) if index + 1 < self.path.len() => table = inner,
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

/// Replaces every `table:FILE` and `file:FILE` by the file's contents, so that a run's file needs no
/// other. Paths are relative to the experiment's folder.
fn embed_tables(document: &mut DeTable, folder: &Path, mistakes: &mut Vec<Mistake>) {
    for (key, value) in document.iter_mut() {
        let span = value.span();
        match Spanned::get_mut(value) {
            DeValue::Table(table) => embed_tables(table, folder, mistakes),
            DeValue::String(text) => {
                let table = |file| Table::read_csv(&folder.join(file));
                let table = |file| table(file).map_err(|error| BadInput(error.to_string()));
                let embedded = if let Some(file) = text.strip_prefix("file:")
                    && key.get_ref() == "trace"
                {
                    let trace = LinkTrace::read(&folder.join(file));
                    let trace = trace.map_err(|error| BadInput(error.to_string()));
                    trace.map(|trace| trace.to_string())
                } else if let Some(file) = text.strip_prefix("table:") {
                    table(file).map(|table| match key.get_ref().as_ref() {
                        "size" => table.to_text(),
                        _ => table_text(&table),
                    })
                } else if let Some(file) = text.strip_prefix("file:") {
                    Writes::read(&folder.join(file)).map(|writes| writes.to_string())
                } else {
                    continue;
                };
                match embedded {
                    Ok(embedded) => *text = embedded.into(),
                    Err(BadInput(why)) => mistakes.push(Mistake::new(span, why)),
                }
            }
            _ => {}
        }
    }
}
