//! Forms (elicitations) of agents: their fields, what was entered, and the result.

use parlor_client::{Json, JsonStr, Object};

use crate::clean::Clean;

/// A form, or a link to open.
#[derive(Debug, Clone)]
pub struct Form {
    /// What the agent says.
    pub message: String,
    /// The link, for a form without fields.
    pub url: Option<String>,
    /// The fields.
    pub fields: Vec<Field>,
}

/// One field of a form with its value.
#[derive(Debug, Clone)]
pub struct Field {
    name: JsonStr,
    /// The title.
    pub title: Clean,
    /// What to enter.
    pub description: Option<Clean>,
    /// Whether a value is required.
    pub is_required: bool,
    /// Whether it is not shown as it is typed.
    pub is_secret: bool,
    /// The type and the present value.
    pub value: FieldValue,
}

/// The type of a field and its present value.
#[derive(Debug, Clone)]
pub enum FieldValue {
    /// A text.
    Text {
        /// The present text.
        text: String,
        /// The minimum length.
        min: Option<usize>,
        /// The maximum length.
        max: Option<usize>,
    },
    /// A number.
    Number {
        /// The present text.
        text: String,
        /// Whether it has no fraction.
        is_whole: bool,
        /// The minimum.
        min: Option<f64>,
        /// The maximum.
        max: Option<f64>,
    },
    /// Yes or no.
    Boolean(bool),
    /// One of several values.
    One {
        /// The values with their titles.
        options: Vec<(Json, Clean)>,
        /// The chosen one.
        chosen: Option<usize>,
    },
    /// Any number of several values.
    Many {
        /// The values with their titles.
        options: Vec<(Json, Clean)>,
        /// Which are chosen.
        chosen: Vec<bool>,
        /// The one under the cursor.
        cursor: usize,
    },
}

impl Form {
    /// Reads the params of an elicitation; `None` if a required field has an unsupported type.
    pub fn of(params: &Object) -> Option<Self> {
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
            match Field::of(name, is_required, schema) {
                Some(field) => fields.push(field),
                // An optional field of an unsupported type is left out.
                None if is_required => return None,
                None => {}
            }
        }
        Some(Self { message, url: None, fields })
    }

    /// The result with all values, or the first field whose value is rejected, and why.
    pub fn accept(&self) -> Result<Object, (usize, String)> {
        let mut content = Object::default();
        for (index, field) in self.fields.iter().enumerate() {
            match field.result() {
                Ok(Some(value)) => content.set(field.name.clone(), value),
                Ok(None) => {}
                Err(reason) => return Err((index, format!("{}: {reason}", field.title))),
            }
        }
        let result = Object::new().with("action", "accept");
        Ok(if self.url.is_some() { result } else { result.with("content", content.to_json()) })
    }

    /// The result that declines the form.
    pub fn decline() -> Object {
        Object::new().with("action", "decline")
    }
}

impl Field {
    fn of(name: &JsonStr, is_required: bool, schema: &Json) -> Option<Self> {
        let schema = schema.to_object()?;
        let number = |name: &str| schema.get(name)?.as_str().parse::<f64>().ok();
        let length = |name: &str| schema.get(name)?.as_str().parse::<usize>().ok();
        let default = schema.get("default").filter(|default| !default.is_null());
        let text = || default.and_then(|default| Some(default.to_text()?.into_owned())).unwrap_or_default();
        let value = match schema.get_string("type")?.as_str() {
            "string" => match options(&schema) {
                Some(options) => {
                    let chosen = options.iter().position(|(value, _)| Some(value) == default);
                    FieldValue::One { options, chosen }
                }
                None => FieldValue::Text { text: text(), min: length("minLength"), max: length("maxLength") },
            },
            whole @ ("integer" | "number") => FieldValue::Number {
                text: default.map(|default| default.as_str().to_owned()).unwrap_or_default(),
                is_whole: whole == "integer",
                min: number("minimum"),
                max: number("maximum"),
            },
            "boolean" => FieldValue::Boolean(default.and_then(Json::as_bool).unwrap_or(false)),
            "array" => {
                let options = options(&schema.get_object("items")?)?;
                let defaults = default.and_then(Json::elements).unwrap_or_default();
                let is_default =
                    |value: &Json| defaults.iter().any(|default| default.as_str() == value.as_str());
                let chosen = options.iter().map(|(value, _)| is_default(value)).collect();
                FieldValue::Many { options, chosen, cursor: 0 }
            }
            _ => return None,
        };
        let title = schema.get_string("title").unwrap_or_else(|| name.to_text().into_owned());
        Some(Self {
            name: name.clone(),
            title: Clean::line(&title),
            description: schema.get_string("description").map(|text| Clean::line(&text)),
            is_required,
            is_secret: schema.get_string("format").as_deref() == Some("password"),
            value,
        })
    }

    /// What values are accepted, if there are limits.
    pub fn limits(&self) -> Option<String> {
        match &self.value {
            FieldValue::Text { min, max, .. } if min.is_some() || max.is_some() => {
                Some(format!("{} characters", range(*min, *max)))
            }
            FieldValue::Number { min, max, .. } if min.is_some() || max.is_some() => Some(range(*min, *max)),
            FieldValue::Text { .. }
            | FieldValue::Number { .. }
            | FieldValue::Boolean(_)
            | FieldValue::One { .. }
            | FieldValue::Many { .. } => None,
        }
    }

    /// The value for the result; `None` if an optional field is empty.
    fn result(&self) -> Result<Option<Json>, String> {
        let required = || if self.is_required { Err("required".to_owned()) } else { Ok(None) };
        match &self.value {
            FieldValue::Text { text, .. } if text.is_empty() => required(),
            FieldValue::Text { text, min, max } => {
                let length = text.chars().count();
                if min.is_some_and(|min| length < min) || max.is_some_and(|max| length > max) {
                    return Err(format!("the length has to be {}", range(*min, *max)));
                }
                Ok(Some(Json::from(text.as_str())))
            }
            FieldValue::Number { text, .. } if text.trim().is_empty() => required(),
            FieldValue::Number { text, is_whole, min, max } => {
                let text = text.trim();
                let number: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
                if *is_whole && text.parse::<i64>().is_err() {
                    return Err(format!("\"{text}\" is not a whole number"));
                }
                if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                    return Err(format!("the number has to be {}", range(*min, *max)));
                }
                Json::parse(text).map(Some).map_err(|_| format!("\"{text}\" is not a number"))
            }
            FieldValue::Boolean(value) => Ok(Some(Json::from(*value))),
            FieldValue::One { options, chosen } => match chosen.and_then(|index| options.get(index)) {
                Some((value, _)) => Ok(Some(value.clone())),
                None => required(),
            },
            FieldValue::Many { options, chosen, .. } => {
                let values = options.iter().zip(chosen).filter(|(_, chosen)| **chosen);
                let values: Vec<_> = values.map(|((value, _), _)| value.clone()).collect();
                if values.is_empty() { required() } else { Ok(Some(Json::array(values))) }
            }
        }
    }
}

fn range<T: std::fmt::Display>(min: Option<T>, max: Option<T>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("{min} or more"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "any".to_owned(),
    }
}

/// The values of an enumeration, with their titles.
fn options(schema: &Object) -> Option<Vec<(Json, Clean)>> {
    if let Some(values) = schema.get_array("enum") {
        let values =
            values.into_iter().map(|value| Some((Json::from(value), Clean::line(&value.to_text()?))));
        return values.collect();
    }
    let titled = ["oneOf", "anyOf"].into_iter().find_map(|name| schema.get_array(name))?;
    let titled = titled.into_iter().map(|option| {
        let option = option.to_object()?;
        let value = option.get("const")?.clone();
        let title = option.get_string("title").or_else(|| Some(value.to_text()?.into_owned()))?;
        Some((value, Clean::line(&title)))
    });
    titled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::object;

    const ALL: &str = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["name","size"],
        "properties":{"name":{"type":"string","title":"Your name","maxLength":5},
            "cups":{"type":"integer","minimum":1,"maximum":3},"price":{"type":"number","default":2.5},
            "sugar":{"type":"boolean"},"size":{"type":"string","enum":["s","l"]},
            "milk":{"type":"array","items":{"anyOf":[{"const":"o","title":"Oat"},{"const":"c","title":"Cow"}]}},
            "nested":{"type":"object"}}}}"#;

    fn type_into(form: &mut Form, index: usize, typed: &str) {
        match &mut form.fields[index].value {
            FieldValue::Text { text, .. } | FieldValue::Number { text, .. } => typed.clone_into(text),
            FieldValue::Boolean(_) | FieldValue::One { .. } | FieldValue::Many { .. } => panic!("no text"),
        }
    }

    #[test]
    fn a_form_is_accepted_when_all_values_are_valid() {
        let mut form = Form::of(&object(ALL)).unwrap();
        assert_eq!(form.fields.len(), 6);
        assert_eq!(form.accept().unwrap_err(), (0, "Your name: required".to_owned()));
        type_into(&mut form, 0, "Adalbert");
        assert_eq!(form.accept().unwrap_err(), (0, "Your name: the length has to be at most 5".to_owned()));
        type_into(&mut form, 0, "Ada");
        type_into(&mut form, 1, "9");
        assert_eq!(form.accept().unwrap_err(), (1, "cups: the number has to be 1 to 3".to_owned()));
        type_into(&mut form, 1, "1.5");
        assert_eq!(form.accept().unwrap_err(), (1, "cups: \"1.5\" is not a whole number".to_owned()));
        type_into(&mut form, 1, "2");
        assert_eq!(form.accept().unwrap_err(), (4, "size: required".to_owned()));
        if let FieldValue::One { chosen, .. } = &mut form.fields[4].value {
            *chosen = Some(1);
        }
        let result = form.accept().unwrap().to_json();
        let content = r#"{"name":"Ada","cups":2,"price":2.5,"sugar":false,"size":"l"}"#;
        assert_eq!(result.as_str(), format!(r#"{{"action":"accept","content":{content}}}"#));
    }

    #[test]
    fn a_required_field_of_an_unsupported_type_makes_the_form_unknown() {
        assert!(Form::of(&object(&ALL.replace(r#"["name","size"]"#, r#"["nested"]"#))).is_none());
    }

    #[test]
    fn a_link_is_accepted_without_content() {
        let form =
            Form::of(&object(r#"{"mode":"url","message":"Log in","url":"https://example.org/"}"#)).unwrap();
        assert_eq!(form.accept().unwrap().to_json().as_str(), r#"{"action":"accept"}"#);
        assert_eq!(Form::decline().to_json().as_str(), r#"{"action":"decline"}"#);
    }
}
