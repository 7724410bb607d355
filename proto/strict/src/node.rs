//! Long, because one type has a method for each kind of field, and they read best side by side.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::ops::RangeInclusive;

use crate::{ConfigError, Field, Kind, Problem, Shape, Value};

/// Whether a field must be there, and what stands for it if not.
#[derive(Clone, Copy, Debug)]
pub enum Need<T> {
    Required,
    Default(T),
}

/// Reads `value` with `read`; every error at once.
///
/// # Errors
/// All [`ConfigError`]s found, in the order of the reading function, unknown keys last per object.
pub fn read<T>(
    value: &Value,
    read: impl FnOnce(&mut Node<'_>) -> T,
) -> Result<T, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let result = Node::enter(String::new(), Some(value), &mut errors, read).0;
    if errors.is_empty() { Ok(result) } else { Err(errors) }
}

/// The shape that `read` accepts.
pub fn describe<T>(read: impl FnOnce(&mut Node<'_>) -> T) -> Shape {
    let mut errors = Vec::new();
    Node::enter(String::new(), None, &mut errors, read).1
}

/// One object of the configuration, asked field by field.
///
/// Every method returns a usable value also after an error, so that reading goes on and later errors
/// are found too; the caller never sees that value, since [`read`] then returns the errors.
pub struct Node<'a> {
    path: String,
    /// `None` while describing, and below a wrong or absent object.
    value: Option<&'a Value>,
    describing: bool,
    errors: &'a mut Vec<ConfigError>,
    shape: Shape,
}

impl Node<'_> {
    fn enter<T>(
        path: String,
        value: Option<&Value>,
        errors: &mut Vec<ConfigError>,
        read: impl FnOnce(&mut Node<'_>) -> T,
    ) -> (T, Shape) {
        let mut node =
            Node { path, value, describing: value.is_none(), errors, shape: Shape::default() };
        if let Some(value) = value
            && !matches!(value, Value::Map(_))
        {
            node.wrong_type(None, value, "an object".into());
            node.value = None;
        }
        let result = read(&mut node);
        node.check_keys();
        (result, node.shape)
    }

    /// Whole number within `range`.
    pub fn int(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        need: Need<u64>,
        doc: &'static str,
    ) -> u64 {
        let (min, max) = range.into_inner();
        let default = need_value(need, |v| Value::Int(v.into()));
        let kind = Kind::Int { min, max };
        let fallback = match need {
            Need::Required => min,
            Need::Default(v) => v,
        };
        self.int_value(name, kind, default, doc, min..=max).unwrap_or(fallback)
    }

    /// Whole number within `range`, or absent.
    pub fn optional_int(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        doc: &'static str,
    ) -> Option<u64> {
        let kind = Kind::Int { min: *range.start(), max: *range.end() };
        self.int_value(name, kind, Some(Value::Null), doc, range)
    }

    fn int_value(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: Option<Value>,
        doc: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let words = kind.words();
        let value = self.field(name, kind, default, doc)?;
        let Value::Int(int) = *value else {
            self.wrong_type(Some(name), value, words);
            return None;
        };
        match u64::try_from(int).ok().filter(|v| range.contains(v)) {
            Some(v) => Some(v),
            None => {
                let allowed = format!("{}..={}", range.start(), range.end());
                self.outside(name, value.shown(), allowed);
                None
            }
        }
    }

    /// Number within `range`.
    pub fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
        need: Need<f64>,
        doc: &'static str,
    ) -> f64 {
        let default = need_value(need, Value::Float);
        let fallback = match need {
            Need::Required => *range.start(),
            Need::Default(v) => v,
        };
        self.number_value(name, range, default, doc).unwrap_or(fallback)
    }

    /// Number within `range`, or absent.
    pub fn optional_number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
        doc: &'static str,
    ) -> Option<f64> {
        self.number_value(name, range, Some(Value::Null), doc)
    }

    fn number_value(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
        default: Option<Value>,
        doc: &'static str,
    ) -> Option<f64> {
        let (min, max) = range.into_inner();
        let kind = Kind::Number { min, max };
        let words = kind.words();
        let value = self.field(name, kind, default, doc)?;
        let number = match *value {
            Value::Float(x) => x,
            #[expect(clippy::as_conversions, reason = "only compared with a range")]
            Value::Int(i) => i as f64,
            _ => {
                self.wrong_type(Some(name), value, words);
                return None;
            }
        };
        if number >= min && number <= max {
            Some(number)
        } else {
            self.outside(name, value.shown(), format!("{min}..={max}"));
            None
        }
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &'static str, default: bool, doc: &'static str) -> bool {
        let Some(value) = self.field(name, Kind::Bool, Some(Value::Bool(default)), doc) else {
            return default;
        };
        match *value {
            Value::Bool(v) => v,
            _ => {
                self.wrong_type(Some(name), value, Kind::Bool.words());
                default
            }
        }
    }

    /// Text of 1 to `len_max` bytes without control characters.
    pub fn text(
        &mut self,
        name: &'static str,
        len_max: usize,
        need: Need<&str>,
        doc: &'static str,
    ) -> String {
        let default = need_value(need, |v| Value::Text(v.into()));
        let fallback = match need {
            Need::Required => String::new(),
            Need::Default(v) => v.into(),
        };
        self.text_value(name, len_max, default, doc).unwrap_or(fallback)
    }

    /// Text of 1 to `len_max` bytes without control characters, or absent.
    pub fn optional_text(
        &mut self,
        name: &'static str,
        len_max: usize,
        doc: &'static str,
    ) -> Option<String> {
        self.text_value(name, len_max, Some(Value::Null), doc)
    }

    fn text_value(
        &mut self,
        name: &'static str,
        len_max: usize,
        default: Option<Value>,
        doc: &'static str,
    ) -> Option<String> {
        let kind = Kind::Text { len_max };
        let value = self.field(name, kind.clone(), default, doc)?;
        let path = self.at(name);
        self.checked_text(path, value, &kind)
    }

    fn checked_text(&mut self, path: String, value: &Value, kind: &Kind) -> Option<String> {
        let Value::Text(text) = value else {
            let problem = Problem::WrongType { found: value.shown(), expected: kind.words() };
            self.errors.push(ConfigError { path, problem });
            return None;
        };
        let len_max = match kind {
            Kind::Text { len_max } | Kind::Name { len_max, .. } => *len_max,
            _ => usize::MAX,
        };
        if text.is_empty() || text.len() > len_max || text.chars().any(char::is_control) {
            let allowed = format!("{} without control characters", kind.words());
            let problem = Problem::Outside { value: value.shown(), allowed };
            self.errors.push(ConfigError { path, problem });
            return None;
        }
        Some(text.clone())
    }

    /// One of the named choices.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        default: (&'static str, T),
        doc: &'static str,
    ) -> T {
        self.choice_value(name, choices, Some(Value::Text(default.0.into())), doc)
            .unwrap_or(default.1)
    }

    /// One of the named choices, or absent.
    pub fn optional_choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        doc: &'static str,
    ) -> Option<T> {
        self.choice_value(name, choices, Some(Value::Null), doc)
    }

    fn choice_value<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
        default: Option<Value>,
        doc: &'static str,
    ) -> Option<T> {
        let kind = Kind::Choice { names: choices.iter().map(|(n, _)| *n).collect() };
        let words = kind.words();
        let value = self.field(name, kind, default, doc)?;
        let Value::Text(text) = value else {
            self.wrong_type(Some(name), value, words);
            return None;
        };
        let found = choices.iter().find(|(n, _)| n == text).map(|(_, v)| *v);
        if found.is_none() {
            self.outside(name, value.shown(), words);
        }
        found
    }

    /// Text that `parse` turns into a value; `expected` names the form, for instance `an address ip:port`.
    pub fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        need: Need<&str>,
        parse: impl Fn(&str) -> Option<T>,
        doc: &'static str,
    ) -> Option<T> {
        let default = need_value(need, |v| Value::Text(v.into()));
        match self.field(name, Kind::Form { expected }, default, doc) {
            Some(Value::Text(text)) => {
                let parsed = parse(text);
                if parsed.is_none() {
                    self.outside(name, Value::Text(text.clone()).shown(), expected.into());
                }
                parsed
            }
            Some(other) => {
                self.wrong_type(Some(name), other, expected.into());
                None
            }
            None => match need {
                Need::Default(v) => parse(v),
                Need::Required => None,
            },
        }
    }

    /// A nested object; absent reads as empty, so that its own defaults and requirements apply.
    pub fn object<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Node<'_>) -> T,
    ) -> T {
        const EMPTY: &Value = &Value::Map(Vec::new());
        let at = self.shape.fields.len();
        let kind = Kind::Object(Shape::default());
        let found = self.field(name, kind, Some(Value::Map(Vec::new())), doc);
        let inner = if self.describing { None } else { Some(found.unwrap_or(EMPTY)) };
        let path = self.at(name);
        let (result, shape) = Node::enter(path, inner, self.errors, read);
        self.set_kind(at, Kind::Object(shape));
        result
    }

    /// A nested object, or absent.
    pub fn optional_object<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Node<'_>) -> T,
    ) -> Option<T> {
        let at = self.shape.fields.len();
        let kind = Kind::Object(Shape::default());
        let found = self.field(name, kind, Some(Value::Null), doc);
        if found.is_none() && !self.describing {
            return None;
        }
        let path = self.at(name);
        let (result, shape) = Node::enter(path, found, self.errors, read);
        self.set_kind(at, Kind::Object(shape));
        found.map(|_| result)
    }

    /// A list of objects, `len` of them; absent is empty when `len` starts at 0.
    pub fn list<T>(
        &mut self,
        name: &'static str,
        len: RangeInclusive<usize>,
        doc: &'static str,
        mut read: impl FnMut(&mut Node<'_>) -> T,
    ) -> Vec<T> {
        let at = self.shape.fields.len();
        let item = Kind::Object(Shape::default());
        let items = self.items(name, item, len.clone(), doc);
        if self.describing {
            let (_, shape) = Node::enter(String::new(), None, self.errors, read);
            let item = Box::new(Kind::Object(shape));
            self.set_kind(at, Kind::List { item, min: *len.start(), max: *len.end() });
            return Vec::new();
        }
        let base = self.at(name);
        let mut result = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{base}[{index}]");
            result.push(Node::enter(path, Some(item), self.errors, &mut read).0);
        }
        result
    }

    /// A list of texts, each of 1 to `len_max` bytes.
    pub fn texts(
        &mut self,
        name: &'static str,
        len: RangeInclusive<usize>,
        len_max: usize,
        doc: &'static str,
    ) -> Vec<String> {
        let kind = Kind::Text { len_max };
        let items = self.items(name, kind.clone(), len, doc);
        let base = self.at(name);
        let mut result = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{base}[{index}]");
            result.extend(self.checked_text(path, item, &kind));
        }
        result
    }

    /// A list of names, each a text of 1 to `len_max` bytes or a whole number up to `index_max`; a number
    /// comes as its decimal text. For instance GPUs, which have an index and a UUID.
    pub fn names(
        &mut self,
        name: &'static str,
        len: RangeInclusive<usize>,
        (index_max, len_max): (u64, usize),
        doc: &'static str,
    ) -> Vec<String> {
        let kind = Kind::Name { index_max, len_max };
        let items = self.items(name, kind.clone(), len, doc);
        let base = self.at(name);
        let mut result = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{base}[{index}]");
            match *item {
                Value::Int(number) if (0..=i128::from(index_max)).contains(&number) => {
                    result.push(format!("{number}"));
                }
                Value::Int(_) => {
                    let problem = Problem::Outside {
                        value: item.shown(),
                        allowed: format!("0..={index_max}"),
                    };
                    self.errors.push(ConfigError { path, problem });
                }
                _ => result.extend(self.checked_text(path, item, &kind)),
            }
        }
        result
    }

    /// Reports that a rule over several fields is broken at `name`.
    pub fn rule_broken(&mut self, name: &str, text: String) {
        if !self.describing {
            let path = self.at(name);
            self.errors.push(ConfigError { path, problem: Problem::Rule { text } });
        }
    }

    /// Whether `name` stands in the configuration (and is not null).
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.value.and_then(|v| v.get(name)).is_some_and(|v| *v != Value::Null)
    }
}

impl<'a> Node<'a> {
    fn items(
        &mut self,
        name: &'static str,
        item: Kind,
        len: RangeInclusive<usize>,
        doc: &'static str,
    ) -> &'a [Value] {
        let (min, max) = len.into_inner();
        let kind = Kind::List { item: Box::new(item), min, max };
        let words = kind.words();
        let default = (min == 0).then(|| Value::List(Vec::new()));
        let Some(value) = self.field(name, kind, default, doc) else { return &[] };
        let Value::List(items) = value else {
            self.wrong_type(Some(name), value, words);
            return &[];
        };
        if items.len() < min || items.len() > max {
            self.outside(name, value.shown(), format!("a length of {min}..={max}"));
            return &[];
        }
        items
    }

    /// Notes the field and finds its value; null reads as absent.
    fn field(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: Option<Value>,
        doc: &'static str,
    ) -> Option<&'a Value> {
        let found = self.value.and_then(|v| v.get(name)).filter(|v| **v != Value::Null);
        if found.is_none() && default.is_none() && self.value.is_some() {
            let problem = Problem::Missing { expected: kind.words() };
            self.errors.push(ConfigError { path: self.at(name), problem });
        }
        self.shape.fields.push(Field { name, doc, kind, default });
        found
    }

    fn set_kind(&mut self, at: usize, kind: Kind) {
        if let Some(field) = self.shape.fields.get_mut(at) {
            field.kind = kind;
        }
    }

    fn check_keys(&mut self) {
        let Some(Value::Map(entries)) = self.value else { return };
        for (index, (key, _)) in entries.iter().enumerate() {
            let problem = if !self.shape.fields.iter().any(|f| f.name == key) {
                Problem::UnknownKey { nearest: self.nearest(key) }
            } else if entries.iter().take(index).any(|(k, _)| k == key) {
                Problem::DuplicateKey
            } else {
                continue;
            };
            let shown: String = key.chars().filter(|c| !c.is_control()).take(60).collect();
            self.errors.push(ConfigError { path: self.at(&shown), problem });
        }
    }

    /// The known key that is at most two edits away.
    fn nearest(&self, key: &str) -> Option<String> {
        if key.len() > 64 {
            return None;
        }
        let best = self.shape.fields.iter().map(|f| (distance(key, f.name), f.name)).min()?;
        (best.0 <= 2).then(|| best.1.into())
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    fn wrong_type(&mut self, name: Option<&str>, value: &Value, expected: String) {
        let path = name.map_or_else(|| self.path.clone(), |name| self.at(name));
        let problem = Problem::WrongType { found: value.shown(), expected };
        self.errors.push(ConfigError { path, problem });
    }

    fn outside(&mut self, name: &str, value: String, allowed: String) {
        let path = self.at(name);
        self.errors.push(ConfigError { path, problem: Problem::Outside { value, allowed } });
    }
}

fn need_value<T: Copy>(need: Need<T>, to_value: impl Fn(T) -> Value) -> Option<Value> {
    match need {
        Need::Required => None,
        Need::Default(v) => Some(to_value(v)),
    }
}

/// Levenshtein distance of two short keys.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, cb) in row.iter_mut().skip(1).zip(&b) {
            let cost = diagonal + usize::from(ca != *cb);
            diagonal = *cell;
            left = cost.min(*cell + 1).min(left + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}
