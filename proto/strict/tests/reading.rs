//! Every error at once, with path, value and bound; and the shape that the same function describes.

use tidegate_strict::{Need, Node, Value, describe, read};

#[derive(Debug, PartialEq)]
struct Demo {
    count: u64,
    ratio: f64,
    name: String,
    mode: u8,
    hosts: Vec<String>,
    inner: u64,
    items: Vec<u64>,
    extra: Option<u64>,
}

fn demo(node: &mut Node<'_>) -> Demo {
    Demo {
        count: node.int("count", 1..=5, Need::Default(2), "how many"),
        ratio: node.number("ratio", 0.0..=1.0, Need::Default(0.5), "a share"),
        name: node.text("name", 8, Need::Required, "what it is called"),
        mode: node.choice("mode", &[("a", 1), ("b", 2)], ("a", 1), "which way"),
        hosts: node.texts("hosts", 0..=3, 4, "names"),
        inner: node.object("inner", "nested", |n| n.int("depth", 0..=9, Need::Default(3), "d")),
        items: node.list("items", 0..=2, "things", |n| n.int("id", 1..=9, Need::Required, "id")),
        extra: node.optional_int("extra", 0..=1, "maybe"),
    }
}

fn check(json: &str, expected: &[&str]) {
    let value: Value = serde_json::from_str(json).unwrap();
    let errors = read(&value, demo).map_or_else(|e| e, |_| Vec::new());
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected, "{json}");
}

#[test]
fn defaults_stand_for_what_is_absent() {
    let value: Value = serde_json::from_str(r#"{"name":"x"}"#).unwrap();
    let expected = Demo {
        count: 2,
        ratio: 0.5,
        name: "x".into(),
        mode: 1,
        hosts: vec![],
        inner: 3,
        items: vec![],
        extra: None,
    };
    assert_eq!(read(&value, demo), Ok(expected));
}

#[test]
fn bounds_are_inclusive() {
    check(r#"{"name":"12345678","count":1,"ratio":0,"extra":0}"#, &[]);
    check(r#"{"name":"12345678","count":5,"ratio":1.0,"extra":1}"#, &[]);
    check(
        r#"{"name":"123456789","count":6,"ratio":1.1,"extra":2}"#,
        &[
            "count: 6 is outside 1..=5",
            "ratio: 1.1 is outside 0..=1",
            "name: \"123456789\" is outside text of 1..=8 bytes without control characters",
            "extra: 2 is outside 0..=1",
        ],
    );
    check(r#"{"name":"x","count":0}"#, &["count: 0 is outside 1..=5"]);
    check(r#"{"name":"x","count":-1}"#, &["count: -1 is outside 1..=5"]);
}

#[test]
fn all_errors_come_at_once_with_their_paths() {
    check(
        r#"{"count":"3","mode":"c","hosts":["ok",7,"toolong"],"inner":{"depth":10,"deptj":1},
            "items":[{"id":1},{}],"conut":1}"#,
        &[
            "count: \"3\" is not whole number in 1..=5",
            "name: is missing; expected text of 1..=8 bytes",
            "mode: \"c\" is outside one of a, b",
            "hosts[1]: 7 is not text of 1..=4 bytes",
            "hosts[2]: \"toolong\" is outside text of 1..=4 bytes without control characters",
            "inner.depth: 10 is outside 0..=9",
            "inner.deptj: is not a known key; did you mean `depth`",
            "items[1].id: is missing; expected whole number in 1..=9",
            "conut: is not a known key; did you mean `count`",
        ],
    );
}

#[test]
fn list_length_is_bounded() {
    check(r#"{"name":"x","items":[{"id":1},{"id":2}]}"#, &[]);
    check(
        r#"{"name":"x","items":[{"id":1},{"id":2},{"id":3}]}"#,
        &["items: a list of 3 is outside a length of 0..=2"],
    );
}

#[test]
fn repeated_key_is_an_error() {
    check(r#"{"name":"x","name":"y"}"#, &["name: appears more than once"]);
}

#[test]
fn another_kind_at_the_top_is_one_error() {
    check("[]", &["(top level): a list of 0 is not an object"]);
    check("null", &["(top level): null is not an object"]);
}

#[test]
fn null_reads_as_absent() {
    check(r#"{"name":"x","count":null,"inner":null,"items":null}"#, &[]);
}

#[test]
fn shape_names_every_field_with_range_and_default() {
    let rows = describe(demo).rows();
    let paths: Vec<&str> = rows.iter().map(|r| r[0].as_str()).collect();
    let expected = [
        "count",
        "ratio",
        "name",
        "mode",
        "hosts",
        "inner",
        "inner.depth",
        "items",
        "items[].id",
        "extra",
    ];
    assert_eq!(paths, expected);
    assert_eq!(rows[0][1..3], ["whole number in 1..=5", "2"]);
    assert_eq!(rows[2][2], "required");
    assert_eq!(rows[9][2], "none");
}

#[test]
fn schema_carries_bounds_and_closes_objects() {
    let schema = serde_json::to_value(describe(demo).json_schema("demo")).unwrap();
    assert_eq!(schema["properties"]["count"]["maximum"], 5);
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], serde_json::json!(["name"]));
    assert_eq!(schema["properties"]["items"]["items"]["required"], serde_json::json!(["id"]));
}

proptest::proptest! {
    #[test]
    fn reading_is_total(text in "\\PC{0,80}", n in proptest::num::i64::ANY, x in proptest::num::f64::ANY) {
        for json in [
            serde_json::json!({ "name": text, "count": n, "ratio": x, "hosts": [text, n] }),
            serde_json::json!({ text.clone(): n, "inner": text, "items": [n, text, null, {"id": x}] }),
        ] {
            let value: Value = serde_json::from_value(json).unwrap();
            let _ = read(&value, demo);
        }
    }
}

#[test]
fn names_are_texts_or_bounded_numbers() {
    let names = |n: &mut Node<'_>| n.names("gpus", 0..=4, (7, 6), "index or UUID");
    let read_names = |json: &str| {
        let value: Value = serde_json::from_str(json).unwrap();
        read(&value, names).map_err(|e| e.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(read_names(r#"{"gpus":[0,"GPU-ab",7]}"#).unwrap(), ["0", "GPU-ab", "7"]);
    assert_eq!(
        read_names(r#"{"gpus":[8,-1,"GPU-abc",true]}"#).unwrap_err(),
        [
            "gpus[0]: 8 is outside 0..=7",
            "gpus[1]: -1 is outside 0..=7",
            "gpus[2]: \"GPU-abc\" is outside whole number in 0..=7 or text of 1..=6 bytes without control characters",
            "gpus[3]: true is not whole number in 0..=7 or text of 1..=6 bytes",
        ]
    );
    let shape = describe(names);
    assert_eq!(shape.rows()[0][1], "list of 0..=4 (whole number in 0..=7 or text of 1..=6 bytes)");
}

#[test]
fn optional_number_is_absent_or_in_range() {
    let maybe = |json: &str| {
        let value: Value = serde_json::from_str(json).unwrap();
        read(&value, |n| n.optional_number("x", 0.5..=2.0, "maybe"))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(maybe("{}"), Ok(None));
    assert_eq!(maybe(r#"{"x":null}"#), Ok(None));
    assert_eq!(maybe(r#"{"x":0.5}"#), Ok(Some(0.5)));
    assert_eq!(maybe(r#"{"x":2}"#), Ok(Some(2.0)));
    assert_eq!(maybe(r#"{"x":2.1}"#), Err(vec!["x: 2.1 is outside 0.5..=2".into()]));
    assert_eq!(maybe(r#"{"x":"2"}"#), Err(vec![r#"x: "2" is not number in 0.5..=2"#.into()]));
}
