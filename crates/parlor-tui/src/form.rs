//! Forms (elicitations) of agents with the values that are entered.

use parlor_client::{Elicitation, FieldKind, FormField, Json, Object};

use crate::clean::Clean;

/// A form, or a link to open.
#[derive(Debug, Clone)]
pub struct Form {
    elicitation: Elicitation,
    /// The fields with their values.
    pub fields: Vec<Field>,
}

/// One field of a form with its value.
#[derive(Debug, Clone)]
pub struct Field {
    schema: FormField,
    /// The title.
    pub title: Clean,
    /// The agent's explanation of the value.
    pub description: Option<Clean>,
    /// The present value.
    pub value: FieldValue,
}

/// The present value of a field.
#[derive(Debug, Clone)]
pub enum FieldValue {
    /// A text or a number, as it is typed.
    Text(String),
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
        let elicitation = Elicitation::parse(params)?;
        let fields = elicitation.fields.iter().map(Field::new).collect();
        Some(Self { elicitation, fields })
    }

    /// The text of the agent.
    pub fn message(&self) -> &str {
        &self.elicitation.message
    }

    /// The link, for a form without fields.
    pub fn url(&self) -> Option<&str> {
        self.elicitation.url.as_deref()
    }

    /// The result with all values, or the first field whose value is rejected, and why.
    pub fn accept(&self) -> Result<Object, (usize, String)> {
        let mut values = Object::default();
        for (index, field) in self.fields.iter().enumerate() {
            match field.result() {
                Ok(Some(value)) => values.set(field.schema.name.clone(), value),
                Ok(None) => {}
                Err(reason) => return Err((index, format!("{}: {reason}", field.title))),
            }
        }
        Ok(self.elicitation.accept(&values))
    }
}

impl Field {
    fn new(field: &FormField) -> Self {
        let default = field.default.as_ref();
        let cleaned = |options: &[(Json, String)]| {
            options.iter().map(|(value, title)| (value.clone(), Clean::line(title))).collect::<Vec<_>>()
        };
        let value = match &field.kind {
            FieldKind::Boolean => FieldValue::Boolean(default.and_then(Json::as_bool).unwrap_or(false)),
            FieldKind::One(options) => FieldValue::One {
                options: cleaned(options),
                chosen: options.iter().position(|(value, _)| Some(value) == default),
            },
            FieldKind::Many(options) => {
                let defaults = default.and_then(Json::elements).unwrap_or_default();
                let is_default =
                    |value: &Json| defaults.iter().any(|default| default.as_str() == value.as_str());
                let chosen = options.iter().map(|(value, _)| is_default(value)).collect();
                FieldValue::Many { options: cleaned(options), chosen, cursor: 0 }
            }
            FieldKind::Number { .. } => {
                FieldValue::Text(default.map(|default| default.as_str().to_owned()).unwrap_or_default())
            }
            FieldKind::Text { .. } | _ => {
                let text = default.and_then(|default| Some(default.to_text()?.into_owned()));
                FieldValue::Text(text.unwrap_or_default())
            }
        };
        Self {
            title: Clean::line(&field.title),
            description: field.description.as_deref().map(Clean::line),
            schema: field.clone(),
            value,
        }
    }

    /// Whether a value is required.
    pub fn is_required(&self) -> bool {
        self.schema.is_required
    }

    /// Whether the value is not shown as it is typed.
    pub fn is_secret(&self) -> bool {
        self.schema.is_secret
    }

    /// The limits of accepted values, if there are any.
    pub fn limits(&self) -> Option<String> {
        self.schema.limits()
    }

    /// The value for the result; `None` if an optional field is empty.
    fn result(&self) -> Result<Option<Json>, String> {
        let value = match &self.value {
            FieldValue::Text(text) if text.trim().is_empty() => None,
            FieldValue::Text(text) => Some(self.schema.parse_text(text)?),
            FieldValue::Boolean(value) => Some(Json::from(*value)),
            FieldValue::One { options, chosen } => {
                chosen.and_then(|index| options.get(index)).map(|(value, _)| value.clone())
            }
            FieldValue::Many { options, chosen, .. } => {
                let values = options.iter().zip(chosen).filter(|(_, chosen)| **chosen);
                let values: Vec<_> = values.map(|((value, _), _)| value.clone()).collect();
                (!values.is_empty()).then(|| Json::array(values))
            }
        };
        if value.is_none() && self.is_required() { Err("required".to_owned()) } else { Ok(value) }
    }
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
        form.fields[index].value = FieldValue::Text(typed.to_owned());
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
}
