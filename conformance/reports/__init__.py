"""The formats of the results: terminal, JSON, JUnit, HTML, badge; and the comparison of two JSON reports."""
