// Judges a bundle as `operator-sdk bundle validate --select-optional suite=operatorframework` does, but for
// what asks other machines for images. Prints each finding; ends with 1 if one of them is an error.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

func main() {
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	validators := append(
		interfaces.Validators{
			validation.OperatorHubV2Validator,
			validation.StandardCapabilitiesValidator,
			validation.StandardCategoriesValidator,
			validation.AlphaDeprecatedAPIsValidator,
			validation.GoodPracticesValidator,
		},
		validation.DefaultBundleValidators...,
	)
	status := 0
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, found := range result.Errors {
			fmt.Println("error:", found)
			status = 1
		}
		for _, found := range result.Warnings {
			fmt.Println("warning:", found)
		}
	}
	os.Exit(status)
}
