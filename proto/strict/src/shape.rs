use alloc::{boxed::Box, format, string::String, vec, vec::Vec};

use crate::Value;

/// The fields of one object, as its reading function asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    pub fields: Vec<Field>,
}

/// One field: what may stand there and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: &'static str,
    pub doc: &'static str,
    pub kind: Kind,
    /// `None`: the field is required. `Some(Null)`: optional without a default.
    pub default: Option<Value>,
}

/// What may stand in a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int {
        min: u64,
        max: u64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Text {
        len_max: usize,
    },
    /// Text in a form of its own, for instance `an address ip:port`.
    Form {
        expected: &'static str,
    },
    /// A text or a whole number, for instance a GPU's UUID or index.
    Name {
        index_max: u64,
        len_max: usize,
    },
    Choice {
        names: Vec<&'static str>,
    },
    Object(Shape),
    /// Objects or texts; `min` and `max` bound their number.
    List {
        item: Box<Self>,
        min: usize,
        max: usize,
    },
}

impl Shape {
    /// JSON schema of this shape.
    #[must_use]
    pub fn json_schema(&self, title: &str) -> Value {
        let Value::Map(mut entries) = self.schema() else { return Value::Null };
        let mut all = vec![
            text("$schema", "https://json-schema.org/draft/2020-12/schema"),
            text("title", title),
        ];
        all.append(&mut entries);
        Value::Map(all)
    }

    /// One row per field for a reference table: path, what may stand there, default, meaning.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 4]> {
        let mut rows = Vec::new();
        self.rows_below("", &mut rows);
        rows
    }

    fn rows_below(&self, prefix: &str, rows: &mut Vec<[String; 4]>) {
        for field in &self.fields {
            let path = format!("{prefix}{}", field.name);
            let default = match &field.default {
                None => "required".into(),
                Some(Value::Null) => "none".into(),
                Some(value) => value.shown(),
            };
            rows.push([path.clone(), field.kind.words(), default, field.doc.into()]);
            match &field.kind {
                Kind::Object(shape) => shape.rows_below(&format!("{path}."), rows),
                Kind::List { item, .. } => {
                    if let Kind::Object(shape) = &**item {
                        shape.rows_below(&format!("{path}[]."), rows);
                    }
                }
                _ => {}
            }
        }
    }

    fn schema(&self) -> Value {
        let mut properties = Vec::new();
        let mut required = Vec::new();
        for field in &self.fields {
            let Value::Map(mut schema) = field.kind.schema() else { continue };
            schema.push(text("description", field.doc));
            match &field.default {
                None => required.push(Value::Text(field.name.into())),
                Some(Value::Null) => {}
                Some(value) => schema.push(("default".into(), value.clone())),
            }
            properties.push((String::from(field.name), Value::Map(schema)));
        }
        Value::Map(vec![
            text("type", "object"),
            ("additionalProperties".into(), Value::Bool(false)),
            ("required".into(), Value::List(required)),
            ("properties".into(), Value::Map(properties)),
        ])
    }
}

impl Kind {
    /// The kind in words, for errors and tables.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::Int { min, max } => format!("whole number in {min}..={max}"),
            Self::Number { min, max } => format!("number in {min}..={max}"),
            Self::Text { len_max } => format!("text of 1..={len_max} bytes"),
            Self::Form { expected } => (*expected).into(),
            Self::Name { index_max, len_max } => {
                format!("whole number in 0..={index_max} or text of 1..={len_max} bytes")
            }
            Self::Choice { names } => format!("one of {}", names.join(", ")),
            Self::Object(_) => "object".into(),
            Self::List { item, min, max } => {
                let items = match &**item {
                    Self::Object(_) => "objects".into(),
                    other => format!("({})", other.words()),
                };
                format!("list of {min}..={max} {items}")
            }
        }
    }

    fn schema(&self) -> Value {
        let entries = match self {
            Self::Bool => vec![text("type", "boolean")],
            Self::Int { min, max } => vec![
                text("type", "integer"),
                ("minimum".into(), Value::Int((*min).into())),
                ("maximum".into(), Value::Int((*max).into())),
            ],
            Self::Number { min, max } => vec![
                text("type", "number"),
                ("minimum".into(), Value::Float(*min)),
                ("maximum".into(), Value::Float(*max)),
            ],
            Self::Text { len_max } => vec![
                text("type", "string"),
                ("minLength".into(), Value::Int(1)),
                ("maxLength".into(), int(*len_max)),
            ],
            Self::Form { .. } => vec![text("type", "string")],
            Self::Name { .. } => {
                let types = ["integer", "string"].map(|t| Value::Text(t.into()));
                vec![("type".into(), Value::List(types.into()))]
            }
            Self::Choice { names } => {
                let names = names.iter().map(|name| Value::Text((*name).into())).collect();
                vec![("enum".into(), Value::List(names))]
            }
            Self::Object(shape) => return shape.schema(),
            Self::List { item, min, max } => vec![
                text("type", "array"),
                ("minItems".into(), int(*min)),
                ("maxItems".into(), int(*max)),
                ("items".into(), item.schema()),
            ],
        };
        Value::Map(entries)
    }
}

fn text(key: &str, value: &str) -> (String, Value) {
    (key.into(), Value::Text(value.into()))
}

fn int(value: usize) -> Value {
    Value::Int(i128::try_from(value).unwrap_or(i128::MAX))
}
