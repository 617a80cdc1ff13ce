use parlor_json::{Json, JsonStr, Object};

/// What an agent asks a person for: the fields of a form, or to open a link.
///
/// ```
/// use parlor_client::{Elicitation, FieldKind, Json, Object};
///
/// let params = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["cups"],
///     "properties":{"cups":{"type":"integer","minimum":1,"maximum":3}}}}"#;
/// let elicitation = Elicitation::parse(&Json::parse(params).unwrap().to_object().unwrap()).unwrap();
/// let cups = &elicitation.fields[0];
/// assert_eq!(cups.parse_text("9").unwrap_err(), "the number has to be 1 to 3");
/// let values = Object::new().with("cups", cups.parse_text("2").unwrap());
/// assert_eq!(elicitation.accept(&values).to_json().as_str(), r#"{"action":"accept","content":{"cups":2}}"#);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Elicitation {
    /// The text of the agent.
    pub message: String,
    /// The link to open, if it has no fields.
    pub url: Option<String>,
    /// The fields.
    pub fields: Vec<FormField>,
}

/// One field of a form.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FormField {
    /// Its name in the result.
    pub name: JsonStr,
    /// Its name, for people.
    pub title: String,
    /// What to enter.
    pub description: Option<String>,
    /// Whether a value is required.
    pub is_required: bool,
    /// Whether the value is not to be shown.
    pub is_secret: bool,
    /// The value unless another one is entered.
    pub default: Option<Json>,
    /// The type of its value.
    pub kind: FieldKind,
}

/// The type of a field's value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text.
    Text {
        /// The minimum number of characters.
        min: Option<usize>,
        /// The maximum number of characters.
        max: Option<usize>,
    },
    /// A number.
    Number {
        /// Whether it has no fraction.
        is_whole: bool,
        /// The minimum.
        min: Option<f64>,
        /// The maximum.
        max: Option<f64>,
    },
    /// Yes or no.
    Boolean,
    /// One of these values, with their titles.
    One(Vec<(Json, String)>),
    /// Any number of these values, with their titles.
    Many(Vec<(Json, String)>),
}

impl Elicitation {
    /// Reads the params of an `elicitation/create` request; `None` if a required field has an unsupported type. Optional fields
    /// of unsupported types are left out.
    pub fn parse(params: &Object) -> Option<Self> {
        let message = params.get_string("message").unwrap_or_default();
        if params.get_string("mode").as_deref() == Some("url") {
            let url = Some(params.get_string("url")?);
            return Some(Self { message, url, fields: Vec::new() });
        }
        let schema = params.get_object("requestedSchema")?;
        let required = schema.get_array("required").unwrap_or_default();
        let required: Vec<_> = required.into_iter().filter_map(JsonStr::from_raw).collect();
        let mut fields = Vec::new();
        for (name, schema) in schema.get_object("properties")?.iter() {
            let is_required = required.contains(name);
            match FormField::parse(name, is_required, schema) {
                Some(field) => fields.push(field),
                None if is_required => return None,
                None => {}
            }
        }
        Some(Self { message, url: None, fields })
    }

    /// The result that accepts it, with the values by the names of their fields. A link has no values.
    pub fn accept(&self, values: &Object) -> Object {
        let result = Object::new().with("action", "accept");
        if self.url.is_some() { result } else { result.with("content", values.to_json()) }
    }

    /// The result that declines an elicitation.
    pub fn decline() -> Object {
        Object::new().with("action", "decline")
    }
}

impl FormField {
    fn parse(name: &JsonStr, is_required: bool, schema: &Json) -> Option<Self> {
        let schema = schema.to_object()?;
        let number = |name: &str| schema.get(name)?.as_str().parse::<f64>().ok();
        let length = |name: &str| schema.get(name)?.as_str().parse::<usize>().ok();
        let kind = match schema.get_string("type")?.as_str() {
            "string" => match options(&schema) {
                Some(options) => FieldKind::One(options),
                None => FieldKind::Text { min: length("minLength"), max: length("maxLength") },
            },
            whole @ ("integer" | "number") => {
                let is_whole = whole == "integer";
                FieldKind::Number { is_whole, min: number("minimum"), max: number("maximum") }
            }
            "boolean" => FieldKind::Boolean,
            "array" => FieldKind::Many(options(&schema.get_object("items")?)?),
            _ => return None,
        };
        Some(Self {
            title: schema.get_string("title").unwrap_or_else(|| name.to_text().into_owned()),
            name: name.clone(),
            description: schema.get_string("description"),
            is_required,
            is_secret: schema.get_string("format").as_deref() == Some("password"),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            kind,
        })
    }

    /// The accepted lengths or numbers, for people, if there are limits.
    pub fn limits(&self) -> Option<String> {
        match &self.kind {
            FieldKind::Text { min, max } => range(*min, *max).map(|range| format!("{range} characters")),
            FieldKind::Number { min, max, .. } => range(*min, *max),
            FieldKind::Boolean | FieldKind::One(_) | FieldKind::Many(_) => None,
        }
    }

    /// The value for a text that a person entered in a field of text or of a number, or why it is rejected.
    pub fn parse_text(&self, text: &str) -> Result<Json, String> {
        match self.kind {
            FieldKind::Number { is_whole, min, max } => parse_number(text.trim(), is_whole, min, max),
            FieldKind::Text { min, max } => match range(min, max) {
                Some(range) if is_outside(&text.chars().count(), min.as_ref(), max.as_ref()) => {
                    Err(format!("the length has to be {range}"))
                }
                _ => Ok(Json::from(text)),
            },
            FieldKind::Boolean | FieldKind::One(_) | FieldKind::Many(_) => Ok(Json::from(text)),
        }
    }
}

fn parse_number(text: &str, is_whole: bool, min: Option<f64>, max: Option<f64>) -> Result<Json, String> {
    let not_a_number = || format!("\"{text}\" is not a number");
    let number: f64 = text.parse().map_err(|_| not_a_number())?;
    if is_whole && text.parse::<i64>().is_err() {
        return Err(format!("\"{text}\" is not a whole number"));
    }
    match range(min, max) {
        Some(range) if is_outside(&number, min.as_ref(), max.as_ref()) => {
            Err(format!("the number has to be {range}"))
        }
        // JSON has no infinity and no leading `+`.
        _ => Json::parse(text).map_err(|_| not_a_number()),
    }
}

fn is_outside<T: PartialOrd>(value: &T, min: Option<&T>, max: Option<&T>) -> bool {
    min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max)
}

/// A range for people; `None` if there are no limits.
fn range<T: std::fmt::Display>(min: Option<T>, max: Option<T>) -> Option<String> {
    match (min, max) {
        (Some(min), Some(max)) => Some(format!("{min} to {max}")),
        (Some(min), None) => Some(format!("at least {min}")),
        (None, Some(max)) => Some(format!("at most {max}")),
        (None, None) => None,
    }
}

/// The values of an enumeration, with their titles.
fn options(schema: &Object) -> Option<Vec<(Json, String)>> {
    if let Some(values) = schema.get_array("enum") {
        let values = values.into_iter().map(|value| Some((Json::from(value), value.to_text()?.into_owned())));
        return values.collect();
    }
    let titled = ["oneOf", "anyOf"].into_iter().find_map(|name| schema.get_array(name))?;
    let titled = titled.into_iter().map(|option| {
        let option = option.to_object()?;
        let value = option.get("const")?.clone();
        let title = option.get_string("title").or_else(|| Some(value.to_text()?.into_owned()))?;
        Some((value, title))
    });
    titled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(params: &str) -> Option<Elicitation> {
        Elicitation::parse(&Json::parse(params).unwrap().to_object().unwrap())
    }

    const ALL: &str = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["name"],
        "properties":{"name":{"type":"string","title":"Your name","minLength":2,"maxLength":5},
            "price":{"type":"number","minimum":1},"cups":{"type":"integer"},"size":{"type":"string","enum":["s","l"]},
            "milk":{"type":"array","items":{"anyOf":[{"const":"o","title":"Oat"},{"const":"c"}]}},
            "pin":{"type":"string","format":"password"},"nested":{"type":"object"}}}}"#;

    #[test]
    fn optional_fields_of_unsupported_types_are_left_out_and_required_ones_are_not_supported() {
        let names =
            |form: Elicitation| form.fields.iter().map(|field| field.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(parse(ALL).unwrap()), ["name", "price", "cups", "size", "milk", "pin"]);
        assert!(parse(&ALL.replace(r#"["name"]"#, r#"["nested"]"#)).is_none());
        assert!(parse(r#"{"mode":"url","message":"Log in"}"#).is_none());
        assert!(parse(r#"{"mode":"form"}"#).is_none());
    }

    #[test]
    fn texts_are_checked_against_the_limits_and_the_type() {
        let form = parse(ALL).unwrap();
        let value = |index: usize, text: &str| {
            form.fields[index].parse_text(text).map(|value| value.as_str().to_owned())
        };
        assert_eq!(value(0, "Ada").unwrap(), r#""Ada""#);
        assert_eq!(value(0, "Adalbert").unwrap_err(), "the length has to be 2 to 5");
        assert_eq!(value(0, "A").unwrap_err(), "the length has to be 2 to 5");
        assert_eq!(value(1, " 1.50 ").unwrap(), "1.50");
        assert_eq!(value(1, "0.5").unwrap_err(), "the number has to be at least 1");
        for text in ["x", "inf", "NaN", "+2", ""] {
            assert_eq!(value(1, text).unwrap_err(), format!("\"{text}\" is not a number"));
        }
        assert_eq!(value(2, "1.5").unwrap_err(), "\"1.5\" is not a whole number");
        assert_eq!(form.fields[0].limits().unwrap(), "2 to 5 characters");
        assert_eq!(form.fields[2].limits(), None);
        assert!(form.fields[5].is_secret && !form.fields[0].is_secret);
    }

    #[test]
    fn options_have_the_titles_of_the_schema_or_their_values() {
        let form = parse(ALL).unwrap();
        let FieldKind::Many(milk) = &form.fields[4].kind else { panic!("{form:?}") };
        let milk: Vec<_> = milk.iter().map(|(value, title)| (value.as_str(), title.as_str())).collect();
        assert_eq!(milk, [(r#""o""#, "Oat"), (r#""c""#, "c")]);
    }

    #[test]
    fn a_link_is_accepted_without_values() {
        let link = parse(r#"{"mode":"url","message":"Log in","url":"https://example.org/"}"#).unwrap();
        assert_eq!(link.accept(&Object::default()).to_json().as_str(), r#"{"action":"accept"}"#);
        assert_eq!(Elicitation::decline().to_json().as_str(), r#"{"action":"decline"}"#);
    }
}
